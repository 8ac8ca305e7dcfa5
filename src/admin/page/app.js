// The dashboard. What it shows comes from requests of strangers, so text goes in as text and never as HTML; the page's policy forbids
// every script but this one. What is filtered and looked at is in the address, so that it can be kept and passed on.

const $ = (id) => document.getElementById(id);
const ROWS_MAX = 200;
const DECISIONS = { allow: "allowed", refuse: "refused", observe: "observed", error: "error" };
const REASONS = {
  "allowed": "no rule against it", "no-rules": "the site has no rules", "robots-txt": "robots.txt itself", "own-page": "a page of the proxy itself",
  "robots-unavailable": "the site withholds its robots.txt", "robots-unreachable": "robots.txt cannot be reached",
  "wait-too-long": "its turn would come too late", "queue-full": "too many wait for the host", "client-gone": "the client went away",
  "client-limit": "the client sends too many", "private-address": "the address is off limits", "upstream-dns": "the name cannot be resolved",
};

// --- small things ---

/** An element with a class, and with text or other elements in it. */
function make(tag, name, ...inside) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside.filter((part) => part !== null && part !== undefined));
  return element;
}

/** 9 s, 4 min, 3 h, 12 d. */
function span(seconds) {
  const [number, unit] = seconds < 60 ? [seconds, "s"] : seconds < 3600 ? [seconds / 60, "min"] : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "d"];
  return `${Math.floor(number)} ${unit}`;
}

const waited = (ms) => (ms === undefined ? "" : ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);
const size = (bytes) => (bytes === null ? "" : bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);

function clock(text) {
  const time = make("time", "", new Date(text).toLocaleTimeString([], { hour12: false }));
  time.dateTime = text;
  time.title = new Date(text).toLocaleString();
  return time;
}

function badge(decision) {
  return make("span", `badge ${decision}`, DECISIONS[decision] ?? decision);
}

/** A URL with its host in bold: scheme, host, rest. */
function address(url) {
  const [, scheme, host, rest] = /^([a-z]+:\/\/)?([^/?]*)(.*)$/s.exec(url);
  return [make("span", "soft", scheme ?? ""), make("span", "where", host), rest];
}

function link(text, view, parameters) {
  const anchor = make("a", "", text);
  anchor.href = `/?${new URLSearchParams({ view, ...parameters })}`;
  anchor.dataset.view = view;
  return anchor;
}

/** Shows rows in a table, or what stands in its place. */
function fill(table, rows, empty) {
  table.tBodies[0].replaceChildren(...rows);
  table.hidden = rows.length === 0;
  if (empty) empty.hidden = rows.length > 0;
}

/** An announcement for who does not see the page. The same words twice are said twice. */
function say(element, text) {
  element.textContent = "";
  setTimeout(() => { element.textContent = text; }, 50);
}

// --- asking the proxy ---

const trouble = new Map();

function report(about, text) {
  if (text) trouble.set(about, text);
  else trouble.delete(about);
  const [first] = trouble.values();
  if ($("trouble").textContent !== (first ?? "")) $("trouble").textContent = first ?? "";
  $("trouble").hidden = !first;
}

/** JSON from the proxy; a problem becomes an error with its detail. */
async function ask(path, parameters = {}, method = "GET") {
  const wanted = Object.entries(parameters).filter(([, value]) => value);
  const answer = await fetch(`${path}?${new URLSearchParams(wanted)}`, { method }).catch(() => {
    report("proxy", "The proxy does not answer. Trying again…");
    throw new Error("the proxy does not answer");
  });
  report("proxy", null);
  if (answer.status === 401) location.assign("/login");
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
  return body;
}

/** Does something again and again while the page is seen: `work` says whether it is needed now. */
function every(milliseconds, work) {
  let running = false;
  const round = async () => {
    if (running || document.hidden) return;
    running = true;
    await work().catch(() => {});
    running = false;
  };
  setInterval(round, milliseconds);
  document.addEventListener("visibilitychange", round);
  return round;
}

// --- what is looked at: the address ---

const views = ["now", "copies", "explain", "connect"];
const state = () => Object.fromEntries(new URLSearchParams(location.search));
const view = () => (views.includes(state().view) ? state().view : "now");

function go(parameters, replace = false) {
  const wanted = Object.entries(parameters).filter(([, value]) => value);
  const url = `/?${new URLSearchParams(wanted)}`;
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
}

/** Puts the address on the page. */
function show() {
  const now = view();
  for (const name of views) {
    $(`view-${name}`).hidden = name !== now;
    const tab = document.querySelector(`nav a[data-view=${name}]`);
    if (name === now) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.title = now === "now" ? "robots-proxy" : `${now[0].toUpperCase()}${now.slice(1)} – robots-proxy`;
  const wanted = state();
  const forms = { now: "filters", copies: "copies-filter", explain: "question" };
  if (forms[now]) for (const field of $(forms[now]).elements) if (field.name) field.value = wanted[field.name] ?? "";
  if (now === "now") follow();
  if (now === "copies") refreshCopies();
  if (now === "explain") explain();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[data-view]");
  if (!anchor || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  history.pushState(null, "", anchor.href);
  show();
  if (!anchor.closest("nav")) $("content").focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("popstate", show);

// --- now: decisions as they come ---

const filters = () => {
  const { host, agent, decision, reason } = state();
  return { host, agent, decision, reason };
};
const isFiltered = () => Object.values(filters()).some(Boolean);

let source = null;
let followed = null;
let arrived = [];
let drawing = false;
const unheard = { all: 0, refuse: 0 };

/** Follows the decisions that the filters let through; does nothing where it does so already. */
function follow() {
  const wanted = JSON.stringify(filters());
  if (wanted === followed) return;
  followed = wanted;
  source?.close();
  arrived = [];
  fill($("decisions"), []);
  $("no-decisions").hidden = true;
  const parameters = Object.entries(filters()).filter(([, value]) => value);
  const live = new EventSource(`/api/decisions/live?${new URLSearchParams(parameters)}`);
  source = live;
  live.addEventListener("open", () => { $("live-state").className = "state on"; $("live-state").textContent = "live"; });
  live.addEventListener("error", () => {
    $("live-state").className = "state";
    $("live-state").textContent = "connection lost, trying again…";
    // A browser does not come back after a refusal by itself.
    if (live.readyState === EventSource.CLOSED) setTimeout(() => { if (source === live) { followed = null; follow(); } }, 5000);
  });
  live.addEventListener("decision", (event) => {
    const record = JSON.parse(event.data);
    arrived.unshift(record);
    arrived.length = Math.min(arrived.length, ROWS_MAX);
    unheard.all += 1;
    unheard.refuse += record.decision === "refuse";
    draw();
  });
  ask("/api/decisions", { ...filters(), limit: ROWS_MAX }).then(({ decisions }) => {
    if (source !== live) return;
    addRows(decisions, true);
    nothingYet();
  }).catch(() => {});
  refreshBlocked();
  refreshLines();
}

/** Draws what has arrived, at most once a frame, and not while somebody reads. */
function draw() {
  if (drawing || isPaused() || document.hidden) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    addRows(arrived.splice(0), false);
    nothingYet();
  });
}

function addRows(records, old) {
  const body = $("decisions").tBodies[0];
  const known = new Set(Array.from(body.rows, (row) => row.dataset.id));
  const rows = records.filter((record) => !known.has(record.id)).map((record) => decisionRow(record, !old));
  // What was asked for at the start is older than what has come since.
  if (old) body.append(...rows);
  else body.prepend(...rows);
  while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
  $("decisions").hidden = body.rows.length === 0;
  learn(records);
}

function decisionRow(record, isNew) {
  const row = make("tr", isNew ? "new" : "");
  row.dataset.id = record.id;
  row.addEventListener("animationend", () => row.classList.remove("new"), { once: true });
  const time = make("td", "time", clock(record.time));
  const bot = make("td", "break", record.agent ?? "–");
  if (record.user_agent) bot.title = record.user_agent;
  const method = record.method === "GET" ? null : `${record.method} `;
  const url = make("td", "url code", method, ...address(record.url));
  const why = make("td", "why", whyOf(record));
  const wait = record.wait_ms ?? record.would_wait_ms;
  row.append(time, make("td", "", badge(record.decision)), bot, url, why, make("td", "number", waited(wait)), make("td", "number", record.status ?? ""));
  if (record.would_wait_ms !== undefined) row.cells[5].title = "would have waited";
  return row;
}

/** The rule, as a way to its line, or the reason. */
function whyOf(record) {
  const question = { url: record.url, agent: record.agent ?? "*" };
  if (record.rule) return link(`${record.rule} (line ${record.line})`, "explain", question);
  const words = make("span", "", REASONS[record.reason] ?? record.reason);
  words.title = record.detail ?? record.reason;
  return words;
}

/** Reasons that were seen are offered by the filter. */
function learn(records) {
  for (const { reason } of records) {
    if (Array.from($("reasons").options, (option) => option.value).includes(reason)) continue;
    const option = make("option");
    option.value = reason;
    $("reasons").append(option);
  }
}

function nothingYet() {
  const empty = $("no-decisions");
  empty.hidden = !$("decisions").hidden;
  if (empty.hidden) return;
  if (isFiltered()) empty.replaceChildren("No decision of late fits the filter. Clear it to see all.");
  else empty.replaceChildren("No request has come yet. Send one through the proxy:", make("pre", "", `curl --proxy ${proxyUrl} --cacert CA.pem https://example.com/`));
}

const isPaused = () => $("pause").getAttribute("aria-pressed") === "true";
$("pause").addEventListener("click", () => {
  $("pause").setAttribute("aria-pressed", String(!isPaused()));
  draw();
});
document.addEventListener("visibilitychange", draw);

// Not each of them: a summary, and seldom.
setInterval(() => {
  if (unheard.all && view() === "now") say($("said"), `${unheard.all} new decisions, ${unheard.refuse} refused`);
  unheard.all = unheard.refuse = 0;
}, 15000);

let typing;
$("filters").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    go({ view: "now", ...Object.fromEntries(new FormData($("filters"))) }, true);
    follow();
  }, 250);
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("reset", () => {
  go({ view: "now" });
  setTimeout(show);
});

// --- now: who is blocked ---

const refreshBlocked = every(2000, async () => {
  if (view() !== "now") return;
  const { host, agent } = filters();
  const { blocked } = await ask("/api/blocked", { host, agent });
  const rows = blocked.slice(0, 50).map((entry) => {
    const who = make("td", "break", entry.agent ?? "–", make("br"), make("span", "soft", entry.host));
    const rule = make("td", "break", whyOf({ ...entry, decision: "refuse" }));
    return make("tr", "", make("td", "number", String(entry.times)), who, rule, make("td", "number soft", clock(entry.last)));
  });
  fill($("blocked"), rows, $("no-blocked"));
});

// --- now: the lines ---

let lines = [];
let linesAt = 0;

const refreshLines = every(1000, async () => {
  if (view() !== "now") return;
  const { host, agent } = filters();
  const fits = (part, text) => !part || (text ?? "").toLowerCase().includes(part.toLowerCase());
  const told = (await ask("/api/lines")).lines;
  linesAt = performance.now();
  lines = told.filter((line) => fits(host, line.host) && fits(agent, line.bot));
  lines.sort((one, other) => other.waiting - one.waiting || one.next_in_s - other.next_in_s);
  const rows = lines.slice(0, 50).map((line) => {
    const held = line.held_for_s === null ? null : make("span", "held", " held");
    const who = make("td", "break", line.host, held, make("br"), make("span", "soft", line.bot ?? "all bots"));
    return make("tr", "", who, make("td", "number", String(line.waiting)), make("td", "number", `${line.delay_s} s`), make("td", "number next"));
  });
  fill($("lines"), rows, $("no-lines"));
  countDown();
});

/** The time to the next start, which goes on between two looks at the proxy. */
function countDown() {
  const since = (performance.now() - linesAt) / 1000;
  const cells = $("lines").querySelectorAll(".next");
  cells.forEach((cell, at) => {
    const left = Math.max(0, lines[at].next_in_s - since);
    const text = left > 0 ? `${left.toFixed(1)} s` : lines[at].waiting ? "now" : "free";
    if (cell.textContent !== text) cell.textContent = text;
  });
}
setInterval(() => { if (!document.hidden) countDown(); }, 100);

// --- copies ---

const refreshCopies = every(5000, async () => {
  if (view() !== "copies") return;
  const origin = state().origin;
  const { total, matching, copies } = await ask("/api/copies", { origin });
  $("copies-state").textContent = matching > copies.length ? `${copies.length} of ${matching}, the latest confirmed first` : `${matching} of ${total}`;
  // A row that has the focus stays what it is.
  if (!$("copies").contains(document.activeElement)) fill($("copies"), copies.map(copyRow));
  $("copies").hidden = copies.length === 0;
  $("no-copies").hidden = copies.length > 0;
  $("no-copies").textContent = origin ? "No copy of such an origin." : "No robots.txt has been fetched yet. The first request for a site does it.";
});

function copyRow(copy) {
  const cell = (name, label, ...inside) => {
    const made = make("td", name, ...inside);
    if (label) made.dataset.name = label;
    return made;
  };
  const left = (Date.parse(copy.expires_at) - Date.now()) / 1000;
  const act = (text, work) => {
    const button = make("button", "small", text);
    button.setAttribute("aria-label", `${text} the copy of ${copy.origin}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      const said = await work().catch((error) => `${copy.origin}: ${error.message}`);
      say($("copies-said"), said);
      button.blur();
      await refreshCopies();
    });
    return button;
  };
  const refresh = act("Refresh", async () => {
    const told = await ask("/api/copy/refresh", { origin: copy.origin }, "POST");
    return `${copy.origin}: ${told.status ? `answered ${told.status}` : "no answer"}${told.failure ? `, ${told.failure}` : ""}`;
  });
  const drop = act("Drop", async () => `dropped ${(await ask("/api/copy", { origin: copy.origin }, "DELETE")).dropped}`);
  const remarks = [copy.sha256 ? null : "no rules", copy.truncated ? "truncated" : null, copy.note, copy.final_url ? `from ${copy.final_url}` : null];
  const row = make("tr", "", cell("url", "", link(copy.origin, "explain", { url: `${copy.origin}/`, agent: "*" })),
    cell("number", "status", String(copy.status)), cell("number", "age", span(copy.age_s)),
    cell("number", "expires", left > 0 ? `in ${span(left)}` : "expired"), cell("number", "size", size(copy.bytes)),
    cell("break soft", "", remarks.filter(Boolean).join(", ")), cell("do", "", refresh, drop));
  row.cells[2].title = `confirmed ${new Date(copy.confirmed_at).toLocaleString()}, this text since ${new Date(copy.fetched_at).toLocaleString()}`;
  return row;
}

$("copies-filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    go({ view: "copies", ...Object.fromEntries(new FormData($("copies-filter"))) }, true);
    refreshCopies();
  }, 250);
});
$("copies-filter").addEventListener("submit", (event) => event.preventDefault());

// --- explain ---

let asked = null;

async function explain() {
  const { url, agent } = state();
  $("no-answer").hidden = Boolean(url);
  if (!url) {
    asked = null;
    $("answer").replaceChildren();
    $("viewer").hidden = true;
    return;
  }
  const question = JSON.stringify([url, agent]);
  if (question === asked) return;
  asked = question;
  try {
    const told = await ask("/api/explain", { url, agent });
    if (question === asked) answer(told);
  } catch (error) {
    asked = null;
    $("viewer").hidden = true;
    $("answer").replaceChildren(make("p", "", badge("error"), " ", error.message));
  }
}

function answer(told) {
  const decision = told.allow ? "allow" : "refuse";
  const verdict = make("p", "", badge(decision), " ", make("strong", "", told.agent === "*" ? "bots that are not named" : told.agent), " ", make("span", "code", told.url));
  const facts = make("dl", "facts");
  const fact = (name, ...value) => facts.append(make("dt", "", name), make("dd", "", ...value));
  if (told.rule) fact("rule", make("span", "code", told.rule), ` on line ${told.line}`);
  else fact("why", REASONS[told.reason] ?? told.reason);
  if (told.group) fact("group", make("span", "code", `User-agent: ${told.group}`));
  if (told.matching.length > 1) fact("stronger than", told.matching.slice(1, 6).map((rule) => `${rule.rule} (line ${rule.line})`).join(", "));
  if (told.crawl_delay_s !== null) fact("crawl delay", `${told.crawl_delay_s} s`);
  const { status, stale, failure, fetched_at } = told.standing;
  fact("robots.txt", told.robots, make("br"), make("span", "soft", status ? `answered ${status}` : "no answer", ", confirmed ", clock(fetched_at), stale ? ", an old copy" : ""));
  if (failure) fact("failure", failure);
  if (told.remarks.length) fact("remarks", told.remarks.join("; "));
  $("answer").replaceChildren(verdict, facts);
  showText(told, decision);
}

/** robots.txt line by line, as the rules are counted: CR, LF and CRLF end a line. */
function showText(told, decision) {
  $("viewer").hidden = told.text === null;
  $("to-line").hidden = told.line === null;
  if (told.text === null) return;
  $("viewer-title").textContent = told.robots;
  const matching = new Set(told.matching.map((rule) => rule.line));
  const texts = told.text.split(/\r\n|\r|\n/);
  if (texts.at(-1) === "") texts.pop();
  const rows = texts.map((text, at) => {
    const line = at + 1;
    const row = make("div", "row", text || " ");
    row.dataset.line = line;
    if (line === told.line) {
      row.classList.add("decides");
      row.id = "deciding";
      row.append(make("span", `tag ${decision}`, `← decides: ${DECISIONS[decision]}`));
    } else if (matching.has(line)) {
      row.classList.add("matches");
      row.append(make("span", "tag", "also matches"));
    }
    return row;
  });
  $("text").replaceChildren(...rows);
  const deciding = $("deciding");
  $("text").scrollTop = deciding ? deciding.offsetTop - $("text").offsetTop - $("text").clientHeight / 3 : 0;
}

$("question").addEventListener("submit", (event) => {
  event.preventDefault();
  asked = null;
  go({ view: "explain", ...Object.fromEntries(new FormData($("question"))) });
  show();
});

// --- the head of the page, and how to connect ---

let proxyUrl = "http://127.0.0.1:3128";
const TROUBLES = {
  "stopping": "The proxy is stopping.",
  "audit-failing": "The audit log takes no records: look at the disk of audit.path.",
  "store-failing": "Copies of robots.txt are not written: look at the disk of state_dir.",
};

const refreshStatus = every(3000, async () => {
  const status = await ask("/api/status");
  $("mode").textContent = status.mode;
  $("mode").className = status.mode;
  $("waiting").textContent = status.waiting;
  $("connections").textContent = status.connections;
  $("copies-count").textContent = status.copies;
  $("uptime").textContent = span(status.uptime_s);
  $("log-out").hidden = !status.guarded;
  report("health", status.reasons.map((reason) => TROUBLES[reason] ?? reason).join(" "));
  const listen = status.listen[0] ?? "";
  proxyUrl = listen.includes(":/") || listen.startsWith("unix:") ? listen : `http://${listen}`;
  if (!$("no-decisions").hidden) nothingYet();
  const facts = [["listens on", status.listen.join(", ")], ["certificate", status.ca.subject], ["SHA-256", status.ca.sha256], ["valid until", new Date(status.ca.not_after).toLocaleDateString()], ["version", status.version]];
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", "", name), make("dd", "break", value)]));
  const paste = `curl --proxy ${proxyUrl} --cacert robots-proxy-ca.pem https://example.com/\n\nexport HTTPS_PROXY=${proxyUrl} https_proxy=${proxyUrl} http_proxy=${proxyUrl}\nexport CURL_CA_BUNDLE=$PWD/robots-proxy-ca.pem REQUESTS_CA_BUNDLE=$PWD/robots-proxy-ca.pem\nexport NODE_EXTRA_CA_CERTS=$PWD/robots-proxy-ca.pem`;
  if ($("paste").textContent !== paste) $("paste").textContent = paste;
});

show();
refreshStatus();
