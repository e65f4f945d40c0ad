//! What the clients of one schedule do, drawn from its seed.

/// SplitMix64: a few lines, and the same numbers from a seed on every machine.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `sides`.
    pub(super) const fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// One step of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) what: What,
    /// Turns it gives away first, so that clients meet at other places each time.
    pub(super) yields: u64,
    /// Leaves before the answer.
    pub(super) leaves: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Takes a session; with `seen`, only at the last seq this client knows.
    Open {
        session: usize,
        seen: bool,
    },
    /// Appends through the newest writer this client has, if any; with `shared`, to the shared log too.
    Append {
        records: usize,
        shared: bool,
    },
    /// Appends to the shared log where this client last saw it.
    AppendAt,
    ReadSession {
        session: usize,
    },
    ReadShared,
}

pub(super) struct Plan {
    pub(super) clients: Vec<Vec<Step>>,
}

impl Plan {
    /// Two or three clients of one to three steps; most are about the first session, so that they meet.
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let clients = 2 + dice.roll(2);
        let client = |_| {
            let steps = 1 + dice.roll(3);
            // Without a writer an append is nothing, so most clients begin with an open.
            let mut client: Vec<_> = (0..steps).map(|_| step(dice)).collect();
            if dice.roll(4) != 0 {
                client.insert(0, Step { what: open(dice), yields: dice.roll(4), leaves: false });
            }
            client
        };
        Self { clients: (0..clients).map(client).collect() }
    }
}

fn step(dice: &mut Dice) -> Step {
    let what = match dice.roll(12) {
        0 | 1 => open(dice),
        2..=4 => What::Append { records: 1 + usize::from(dice.roll(3) == 0), shared: false },
        5..=7 => What::Append { records: 1, shared: true },
        8 | 9 => What::AppendAt,
        10 => What::ReadSession { session: session(dice) },
        _ => What::ReadShared,
    };
    Step { what, yields: dice.roll(6), leaves: dice.roll(16) == 0 }
}

fn open(dice: &mut Dice) -> What {
    What::Open { session: session(dice), seen: dice.roll(3) == 0 }
}

fn session(dice: &mut Dice) -> usize {
    usize::from(dice.roll(5) == 0)
}
