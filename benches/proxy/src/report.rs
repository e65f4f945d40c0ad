//! One run: everybody is started, each load goes to each in turn, round by round, and the medians become one table with its verdicts.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::load::{self, Target};
use crate::process::{self, Process};
use crate::{bodies, peers};

pub(crate) struct Options {
    rounds: usize,
    seconds: f64,
    requests: usize,
    nginx: Option<PathBuf>,
    litellm: Option<PathBuf>,
    folder: PathBuf,
    only: Option<String>,
}

impl Options {
    pub(crate) fn of(options: &[&str]) -> Self {
        let of = |name: &str| options.iter().position(|option| *option == name).map(|at| options[at + 1]);
        Self {
            rounds: of("--rounds").map_or(7, |n| n.parse().unwrap()),
            seconds: of("--seconds").map_or(2.0, |n| n.parse().unwrap()),
            requests: of("--requests").map_or(100_000, |n| n.parse().unwrap()),
            nginx: of("--nginx").map(PathBuf::from),
            litellm: of("--litellm").map(PathBuf::from),
            folder: of("--folder").map_or_else(std::env::temp_dir, PathBuf::from),
            only: of("--only").map(str::to_owned),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)))
    }
}

/// One that is measured.
struct Peer {
    name: &'static str,
    target: Target,
    /// `None` for the provider itself.
    process: Option<Process>,
    idle: u64,
    after: u64,
}

struct Shape {
    name: &'static str,
    body: Vec<u8>,
    connections: usize,
}

/// Medians of one peer under one load.
#[derive(Clone, Default)]
struct Figures {
    cpu: Vec<f64>,
    first: Vec<f64>,
    whole: Vec<f64>,
    requests: usize,
}

const DIRECT: &str = "direct";
const PASS: &str = "hyper pass-through";
const MEMORY: &str = "agentrun, books in memory";
const DURABLE: &str = "agentrun, SQLite";
const NGINX: &str = "nginx";
const LITELLM: &str = "LiteLLM";

pub(crate) async fn run(options: &Options) {
    process::stay_off();
    let folder = tempfile::tempdir_in(&options.folder).unwrap();
    let (_provider, origin, _) = Process::role(&["upstream"], false);
    let (mut peers, missing) = started(options, &origin, folder.path()).await;
    let mut disk = Disk::open(&format!("sqlite:{}", folder.path().join("bare.db").display())).await;

    let shapes = [
        Shape { name: "7 KB, c=1", body: bodies::request(7_000, false), connections: 1 },
        Shape { name: "7 KB, c=32", body: bodies::request(7_000, false), connections: 32 },
        Shape { name: "210 KB, c=1", body: bodies::request(210_000, false), connections: 1 },
        Shape { name: "events, c=1", body: bodies::request(7_000, true), connections: 1 },
    ];
    for shape in &shapes {
        eprintln!("{}: {} bytes", shape.name, shape.body.len());
    }
    let mut figures = vec![vec![Figures::default(); peers.len()]; shapes.len()];
    let mut pairs = Vec::new();
    // The first round warms up and is not counted.
    for round in 0..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (shape, figures) in shapes.iter().zip(&mut figures) {
            for (peer, figures) in peers.iter().zip(figures) {
                let seconds = if round == 0 { options.seconds / 4.0 } else { options.seconds };
                let until = Instant::now() + Duration::from_secs_f64(seconds);
                let before = peer.process.as_ref().map(Process::cpu);
                let took = load::run(&peer.target, &shape.body, shape.connections, until, usize::MAX).await;
                let spent = peer.process.as_ref().map(Process::cpu).zip(before).map(|(after, before)| after - before);
                if round > 0 {
                    figures.requests += took.whole.len();
                    figures.cpu.push(spent.map_or(0.0, |spent| spent.as_secs_f64() * 1e6 / took.whole.len() as f64));
                    figures.first.push(median_of(took.first) / 1e3);
                    figures.whole.push(median_of(took.whole) / 1e3);
                }
            }
        }
        let took = disk.pairs(Instant::now() + Duration::from_secs_f64(options.seconds)).await;
        if round > 0 {
            pairs.push(median_of(took) / 1e3);
        }
    }
    for peer in &mut peers {
        peer.after = peer.process.as_ref().map_or(0, Process::rss);
    }
    let grown = grown(options, &origin, &shapes[1]).await;
    print(options, &peers, &missing, &shapes, &figures, &pairs, &grown);
}

async fn started(options: &Options, origin: &str, folder: &std::path::Path) -> (Vec<Peer>, Vec<String>) {
    let mut peers = Vec::new();
    let mut missing = Vec::new();
    let mut add = |name, target, process| peers.push(Peer { name, target, process, idle: 0, after: 0 });
    add(DIRECT, Target { url: origin.to_owned(), key: "none".to_owned() }, None);
    let database = format!("sqlite:{}", folder.join("books.db").display());
    for (name, arguments) in [
        (PASS, vec!["pass", origin]),
        (MEMORY, vec!["ours", origin, "memory"]),
        (DURABLE, vec!["ours", origin, &database]),
    ] {
        if options.wants(name) {
            let (process, url, key) = Process::role(&arguments, true);
            add(name, Target { url, key }, Some(process));
        }
    }
    for (name, program) in [(NGINX, &options.nginx), (LITELLM, &options.litellm)] {
        let Some(program) = program.as_ref().filter(|_| options.wants(name)) else {
            missing.push(format!("{name}: not given"));
            continue;
        };
        let started = match name {
            NGINX => peers::nginx(program, origin, folder).await,
            _ => peers::litellm(program, origin, folder).await,
        };
        match started {
            Ok((process, target)) => add(name, target, Some(process)),
            Err(why) => missing.push(format!("{name}: {why}")),
        }
    }
    // Nobody was asked anything yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for peer in &mut peers {
        peer.idle = peer.process.as_ref().map_or(0, Process::rss);
    }
    (peers, missing)
}

/// What a process of its own takes as it is asked so often: at first, after a tenth, and after all of it. What grows with requests shows
/// between the two last ones.
struct Grown {
    name: &'static str,
    resident: [u64; 3],
}

async fn grown(options: &Options, origin: &str, shape: &Shape) -> Vec<Grown> {
    let mut all = Vec::new();
    for (name, arguments) in [(PASS, vec!["pass", origin]), (MEMORY, vec!["ours", origin, "memory"])] {
        if !options.wants(name) {
            continue;
        }
        let (process, url, key) = Process::role(&arguments, true);
        let target = Target { url, key };
        let mut resident = [0; 3];
        let tenth = options.requests / 10;
        for (resident, requests) in resident.iter_mut().zip([0, tenth, options.requests - tenth]) {
            if requests > 0 {
                let long = Instant::now() + Duration::from_secs(600);
                load::run(&target, &shape.body, shape.connections, long, requests).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            *resident = process.rss();
        }
        all.push(Grown { name, resident });
    }
    all
}

fn median_of(mut all: Vec<u64>) -> f64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default() as f64
}

fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn print(
    options: &Options,
    peers: &[Peer],
    missing: &[String],
    shapes: &[Shape],
    figures: &[Vec<Figures>],
    pairs: &[f64],
    grown: &[Grown],
) {
    println!("{} rounds of {} s for each line; medians of the rounds' values\n", options.rounds, options.seconds);
    println!(
        "| load | who | requests | CPU us a request | p50 ms | first byte p50 ms |\n| --- | --- | --- | --- | --- | --- |"
    );
    for (shape, figures) in shapes.iter().zip(figures) {
        for (peer, figures) in peers.iter().zip(figures) {
            println!(
                "| {} | {} | {} | {:.0} | {:.3} | {:.3} |",
                shape.name,
                peer.name,
                figures.requests,
                median(&figures.cpu),
                median(&figures.whole) / 1e3,
                median(&figures.first) / 1e3
            );
        }
    }
    println!("\nTwo bare synced appends to SQLite: {:.3} ms", median(pairs) / 1e3);
    let mb = |kib: u64| kib as f64 / 1024.0;
    println!("\n| who | resident idle MB | after the rounds MB |\n| --- | --- | --- |");
    for peer in peers.iter().filter(|peer| peer.process.is_some()) {
        println!("| {} | {:.1} | {:.1} |", peer.name, mb(peer.idle), mb(peer.after));
    }
    let (all, tenth) = (options.requests, options.requests / 10);
    println!(
        "\n| who, afresh | resident idle MB | after {tenth} requests MB | after {all} MB |\n| --- | --- | --- | --- |"
    );
    for Grown { name, resident: [idle, tenth, all] } in grown {
        println!("| {name} | {:.2} | {:.2} | {:.2} |", mb(*idle), mb(*tenth), mb(*all));
    }
    for why in missing {
        println!("\nNot measured: {why}");
    }

    let of = |name: &str| peers.iter().position(|peer| peer.name == name);
    // Round by round: both of a pair had the same machine.
    let paired = |shape: usize, a: &str, b: &str, what: fn(&Figures) -> &Vec<f64>, with: fn(f64, f64) -> f64| {
        let (a, b) = (&figures[shape][of(a)?], &figures[shape][of(b)?]);
        let each: Vec<f64> = what(a).iter().zip(what(b)).map(|(a, b)| with(*a, *b)).collect();
        Some((median(&each), each))
    };
    let ratio = |a: f64, b: f64| a / b;
    let more = |a: f64, b: f64| (a - b) / 1e3;
    println!("\n| figure | must reach | median | single rounds | |\n| --- | --- | --- | --- | --- |");
    let line = |figure: &str, most: f64, unit: &str, got: Option<(f64, Vec<f64>)>| {
        let Some((median, each)) = got else {
            println!("| {figure} | <= {most}{unit} | - | not measured | |");
            return;
        };
        let each: Vec<String> = each.iter().map(|each| format!("{each:.3}")).collect();
        let verdict = if median <= most { "reached" } else { "**MISSED**" };
        println!("| {figure} | <= {most}{unit} | {median:.3}{unit} | {} | {verdict} |", each.join(" "));
    };
    line("CPU against the pass-through, 7 KB, c=1", 1.6, "", paired(0, MEMORY, PASS, |f| &f.cpu, ratio));
    line("CPU against the pass-through, 7 KB, c=32", 2.4, "", paired(1, MEMORY, PASS, |f| &f.cpu, ratio));
    line("CPU against the pass-through, 210 KB, c=1", 3.2, "", paired(2, MEMORY, PASS, |f| &f.cpu, ratio));
    line("added p50, c=1, books in memory", 0.1, " ms", paired(0, MEMORY, PASS, |f| &f.whole, more));
    let durable = paired(0, DURABLE, PASS, |f| &f.whole, more).map(|(_, each)| {
        let each: Vec<f64> = each.iter().zip(pairs).map(|(each, pair)| each - pair / 1e3).collect();
        (median(&each), each)
    });
    line("added p50, c=1, durable, beyond the bare appends", 0.3, " ms", durable);
    line("first byte of a stream", 0.3, " ms", paired(3, MEMORY, PASS, |f| &f.first, more));
    line("CPU against LiteLLM, 7 KB, c=1", 0.01, "", paired(0, MEMORY, LITELLM, |f| &f.cpu, ratio));
    line("CPU against LiteLLM, 7 KB, c=32", 0.01, "", paired(1, MEMORY, LITELLM, |f| &f.cpu, ratio));
    line("CPU against nginx, 7 KB, c=1", 4.0, "", paired(0, MEMORY, NGINX, |f| &f.cpu, ratio));
    line("CPU against nginx, 7 KB, c=32", 4.0, "", paired(1, MEMORY, NGINX, |f| &f.cpu, ratio));
    let ours = grown.iter().find(|grown| grown.name == MEMORY).map(|grown| grown.resident.map(mb));
    let alone = |of: fn([f64; 3]) -> f64| ours.map(|resident| (of(resident), vec![of(resident)]));
    line("resident, idle", 12.0, " MB", alone(|[idle, ..]| idle));
    line("resident, after all requests", 12.0, " MB", alone(|[.., all]| all));
    // A page or two of the allocator is no growth.
    line("resident, grown after the first tenth of them", 0.1, " MB", alone(|[_, tenth, all]| all - tenth));
}
