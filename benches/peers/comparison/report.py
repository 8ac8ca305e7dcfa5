"""Outcomes as tables, for the screen and for docs/performance.md."""

import json
import os
import statistics

from .scenarios import ALL
from .targets import DIRECT, OURS, PEER

BEGIN, END = "<!-- Written by benches/peers/run --write: begin -->", "<!-- end -->"


def tables(results):
    """Everything that was measured, in Markdown."""
    text = [f"{results['when']}, {results['processor']}, {results['rounds']} rounds of {results['seconds']:g} s; "
            f"{', '.join(results['versions'])}.\n"]
    for scenario in ALL:
        if scenario.name in results["scenarios"]:
            text.append(table(scenario, results["scenarios"][scenario.name]))
    if results.get("instructions"):
        text.append(instructions(results["instructions"]))
    return "\n".join(text)


def table(scenario, outcomes):
    """One scenario."""
    if scenario.held:
        head, row = ["proxy", "MiB fresh", "KiB each", f"KiB / {scenario.reference}"], held
    elif scenario.bodies:
        head, row = ["proxy", "CPU µs/MB", f"CPU / {scenario.reference}", "MB/s", "memory growth, KiB"], bulk
    else:
        head, row = ["proxy", f"CPU µs/{scenario.unit}", f"CPU / {scenario.reference}", f"{scenario.unit}s/s", "p50 µs", "p99 µs", "errors"], load
    lines = [f"### {scenario.title}\n", markdown(head), markdown(["---"] * len(head))]
    for label, rounds in outcomes.items():
        if any(rounds):
            lines.append(markdown([label, *row(scenario, label, rounds, outcomes)]))
    return "\n".join(lines) + "\n"


def load(scenario, label, rounds, outcomes):
    errors = sum(one.get("errors", 0) for one in rounds)
    told = next((one["error"] for one in rounds if one.get("error")), "")
    return [median(rounds, "cpu_us", "{:,.1f}"), ratio(label, "cpu_us", outcomes, scenario.reference), median(rounds, "rate"),
            median(rounds, "p50_us"), median(rounds, "p99_us"), f"{errors}: {told[:60]}" if errors else "0"]


def bulk(scenario, label, rounds, outcomes):
    return [median(rounds, "cpu_us"), ratio(label, "cpu_us", outcomes, scenario.reference), median(rounds, "rate"), median(rounds, "growth_kib")]


def held(scenario, label, rounds, outcomes):
    if label == DIRECT:
        return ["-"] * 3
    fresh = [one["fresh_kib"] / 1024 for one in rounds if "fresh_kib" in one]
    each = median(rounds, "kib_each", "{:,.1f}")
    if each == "-" and rounds:
        each = f"held {rounds[0].get('held', 0):,}: {str(rounds[0].get('error') or 'it closes them')[:60]}"
    return [f"{fresh[0]:.1f}" if fresh else "-", each, ratio(label, "kib_each", outcomes, scenario.reference)]


def instructions(counted):
    lines = ["### User-space instructions, thousands (callgrind, one connection)\n",
             markdown(["for each", OURS, PEER, "ratio"]), markdown(["---"] * 4)]
    for workload, costs in counted.items():
        ours, peer = costs.get(OURS), costs.get(PEER)
        both = f"{ours / peer:.2f}" if ours and peer else "-"
        lines.append(markdown([workload, *(f"{cost / 1000:,.1f}" if cost else "-" for cost in (ours, peer)), both]))
    return "\n".join(lines) + "\n"


def median(rounds, key, form="{:,.0f}"):
    values = [one[key] for one in rounds if one.get(key) is not None]
    return form.format(statistics.median(values)) if values else "-"


def ratio(label, key, outcomes, reference):
    """The median of the ratios within each round."""
    pairs = zip(outcomes[label], outcomes.get(reference, []))
    ratios = [one[key] / other[key] for one, other in pairs if one.get(key) and other.get(key)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def markdown(cells):
    return f"| {' | '.join(cells)} |"


def keep(results, folder):
    """Writes what was measured to a file, and returns its name."""
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, results["when"].replace(" ", "T").replace(":", "") + ".json")
    with open(name, "w") as file:
        json.dump(results, file, indent=1)
    return name


def write(text, page):
    """Puts the tables into a page, in place of those that stand there."""
    with open(page) as file:
        before, _, rest = file.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"benches/peers/run: {page} has no place for the tables, between {BEGIN} and {END}")
    with open(page, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
