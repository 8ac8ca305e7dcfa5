//! What processes have used of the processors.

/// Linux counts in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of some processes, those of their threads that have ended included.
pub fn cpu_seconds(processes: &[u32]) -> f64 {
    processes.iter().filter_map(|process| ticks(*process)).sum::<u64>() as f64 / TICKS_PER_SECOND
}

fn ticks(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold spaces.
    let fields: Vec<&str> = stat[stat.rfind(')')?..].split(' ').collect();
    Some(fields.get(12)?.parse::<u64>().ok()? + fields.get(13)?.parse::<u64>().ok()?)
}
