//! The ledger of a simulated run: shards, attempts, learned rates, and the rules of claims.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::{COPY_GAIN, Supply, still_needs};

/// The part of a kind's rate that is kept when a shard is counted.
const KEPT: f64 = 0.8;

/// One claim of a shard by a device.
pub(super) struct Attempt {
    pub(super) shard: usize,
    pub(super) device: usize,
    pub(super) claimed_at: f64,
    /// When it should end; none while the device's rate is unknown.
    pub(super) expected_at: Option<f64>,
    /// When another attempt was counted or its lease had run out.
    pub(super) ended_at: Option<f64>,
}

#[derive(Default)]
pub(super) struct Ledger {
    /// Operations of each shard.
    pub(super) flops: Vec<f64>,
    /// Queued shards by operations (positive floats order as their bits do), then index.
    queued: BTreeSet<(u64, usize)>,
    pub(super) attempts: Vec<Attempt>,
    /// Live attempts of each shard.
    live: Vec<Vec<usize>>,
    /// Shards that somebody computes and nobody has finished.
    running: BTreeSet<usize>,
    /// Operations that are not counted yet.
    remaining: f64,
    /// Shards that are not counted yet.
    pub(super) left: usize,
    /// Devices that are there, by kind.
    present: BTreeMap<u32, u32>,
    /// Learned rates by kind.
    rates: BTreeMap<u32, f64>,
}

/// Who claims.
pub(super) struct Claimant {
    pub(super) device: usize,
    pub(super) kind: u32,
    /// The rate that it has measured itself.
    pub(super) measured: Option<f64>,
}

impl Ledger {
    pub(super) fn new(flops: Vec<f64>) -> Self {
        Self {
            queued: (0..)
                .zip(&flops)
                .map(|(shard, f)| (f.to_bits(), shard))
                .collect(),
            live: vec![Vec::new(); flops.len()],
            remaining: flops.iter().sum(),
            left: flops.len(),
            flops,
            ..Self::default()
        }
    }

    pub(super) fn join(&mut self, kind: u32) {
        *self.present.entry(kind).or_default() += 1;
    }

    pub(super) fn leave(&mut self, kind: u32) {
        if let Some(devices) = self.present.get_mut(&kind) {
            *devices -= 1;
        }
    }

    fn rate(&self, claimant: &Claimant) -> Option<f64> {
        claimant
            .measured
            .or_else(|| self.rates.get(&claimant.kind).copied())
    }

    /// Attempts at queued shards, in the order in which the device should run them.
    pub(super) fn claim(&mut self, claimant: &Claimant, now: f64) -> Vec<usize> {
        if self.queued.is_empty() {
            return Vec::new();
        }
        let rate = self.rate(claimant);
        let of_kind = |kind| self.rates.get(kind).copied().or(rate).unwrap_or(0.0);
        let present = self.present.iter();
        let quota = Supply {
            rate,
            pool_rate: present.map(|(kind, &n)| f64::from(n) * of_kind(kind)).sum(),
            devices: self.present.values().sum(),
            remaining: self.remaining,
        }
        .quota();
        let mut claimed = Vec::new();
        let mut sum = 0.0;
        while claimed.is_empty() || sum < quota.total {
            let fitting = self
                .queued
                .range(..=(quota.largest.to_bits(), usize::MAX))
                .next_back();
            let smallest = self.queued.first().filter(|_| claimed.is_empty());
            let Some(&entry) = fitting.or(smallest) else {
                break;
            };
            self.queued.remove(&entry);
            sum += self.flops[entry.1];
            claimed.push(self.attempt(claimant, entry.1, now, rate.map(|rate| now + sum / rate)));
        }
        claimed
    }

    /// Devices at something that `claimant` might repeat, each once for every shard: none as long
    /// as its rate is unknown.
    pub(super) fn busy(&self, claimant: &Claimant) -> Vec<usize> {
        if self.rate(claimant).is_none() {
            return Vec::new();
        }
        let live = self.running.iter().flat_map(|&shard| &self.live[shard]);
        live.map(|&attempt| self.attempts[attempt].device).collect()
    }

    /// An attempt at what another device is at and would finish later: what needs longest.
    pub(super) fn copy(&mut self, claimant: &Claimant, now: f64) -> Option<usize> {
        let rate = self.rate(claimant)?;
        let mut longest: Option<(f64, usize)> = None;
        for &shard in &self.running {
            let [attempt] = self.live[shard][..] else {
                continue;
            };
            let attempt = &self.attempts[attempt];
            let needs = still_needs(now, attempt.claimed_at, attempt.expected_at);
            if attempt.device != claimant.device
                && self.flops[shard] / rate < COPY_GAIN * needs
                && longest.is_none_or(|(most, _)| needs > most)
            {
                longest = Some((needs, shard));
            }
        }
        let (_, shard) = longest?;
        let expected = now + self.flops[shard] / rate;
        Some(self.attempt(claimant, shard, now, Some(expected)))
    }

    fn attempt(&mut self, who: &Claimant, shard: usize, now: f64, expected: Option<f64>) -> usize {
        let index = self.attempts.len();
        self.attempts.push(Attempt {
            shard,
            device: who.device,
            claimed_at: now,
            expected_at: expected,
            ended_at: None,
        });
        self.live[shard].push(index);
        self.running.insert(shard);
        index
    }

    /// Counts a live attempt that took `seconds`, and ends the others at its shard: returns those.
    pub(super) fn count(
        &mut self,
        attempt: usize,
        kind: u32,
        seconds: f64,
        now: f64,
    ) -> Vec<usize> {
        let shard = self.attempts[attempt].shard;
        self.remaining = (self.remaining - self.flops[shard]).max(0.0);
        self.left -= 1;
        self.running.remove(&shard);
        if seconds > 0.0 {
            let measured = self.flops[shard] / seconds;
            let rate = self.rates.entry(kind).or_insert(measured);
            *rate = KEPT * *rate + (1.0 - KEPT) * measured;
        }
        let mut others = std::mem::take(&mut self.live[shard]);
        others.retain(|&other| other != attempt);
        for &other in &others {
            self.attempts[other].ended_at = Some(now);
        }
        others
    }

    /// Ends the attempts of a device whose leases have run out.
    pub(super) fn lose(&mut self, device: usize, now: f64) {
        let running: Vec<usize> = self.running.iter().copied().collect();
        for shard in running {
            let attempts = &mut self.attempts;
            self.live[shard].retain(|&attempt| {
                let lost = attempts[attempt].device == device;
                if lost {
                    attempts[attempt].ended_at = Some(now);
                }
                !lost
            });
            if self.live[shard].is_empty() {
                self.running.remove(&shard);
                self.queued.insert((self.flops[shard].to_bits(), shard));
            }
        }
    }
}
