//! The course of a simulated run: what the devices do, event by event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::ledger::{Claimant, Ledger};
use super::{SimulatedDevice, SimulatedRun, SimulationTimes};

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Join,
    Leave,
    /// The leases of a device that has left run out.
    Lose,
    /// A device without work asks again.
    Poll {
        turn: u64,
    },
    /// A device is through with its shard, or stops with it.
    End {
        turn: u64,
    },
}

/// What a device is at.
#[derive(Clone, Copy, Debug)]
struct Current {
    attempt: usize,
    started_at: f64,
    /// Stops before the shard is finished.
    stops: bool,
}

/// A device in the course of the run.
struct Slot<'a> {
    device: &'a SimulatedDevice,
    /// Claimed and not begun.
    batch: VecDeque<usize>,
    current: Option<Current>,
    /// Goes up with whatever it begins; an event of an earlier turn is void.
    turn: u64,
    /// Since when it has had nothing to do.
    idle_since: Option<f64>,
    /// The rate of its last shard.
    measured: Option<f64>,
    /// Its renewals up to here are known to the ledger.
    renewed_at: f64,
    gone: bool,
    useful_until: f64,
}

/// A run in progress.
pub(super) struct Run<'a> {
    /// Of each shard, the operations up to and with each micro-batch.
    shards: Vec<Vec<f64>>,
    slots: Vec<Slot<'a>>,
    times: &'a SimulationTimes,
    ledger: Ledger,
    /// By time (seconds are never negative, so they order as their bits do), then in the order in
    /// which they were scheduled.
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    scheduled: u64,
    vain_flops: f64,
    claims: u64,
    copies: u64,
}

impl<'a> Run<'a> {
    /// `shards`: the operations of the micro-batches of each shard.
    pub(super) fn new(
        mut shards: Vec<Vec<f64>>,
        devices: &'a [SimulatedDevice],
        times: &'a SimulationTimes,
    ) -> Self {
        for shard in &mut shards {
            let mut sum = 0.0;
            for flops in shard {
                sum += *flops;
                *flops = sum;
            }
        }
        let flops = shards
            .iter()
            .map(|shard| shard.last().copied().unwrap_or(0.0));
        let slots = devices.iter().map(|device| Slot {
            device,
            batch: VecDeque::new(),
            current: None,
            turn: 0,
            idle_since: None,
            measured: None,
            renewed_at: device.joins,
            gone: false,
            useful_until: 0.0,
        });
        Self {
            ledger: Ledger::new(flops.collect()),
            shards,
            slots: slots.collect(),
            times,
            events: BinaryHeap::new(),
            scheduled: 0,
            vain_flops: 0.0,
            claims: 0,
            copies: 0,
        }
    }

    /// Runs until nothing happens any more.
    pub(super) fn finish(mut self) -> SimulatedRun {
        for index in 0..self.slots.len() {
            let device = self.slots[index].device;
            self.schedule(device.joins, index, Event::Join);
            if let Some(leaves) = device.leaves {
                self.schedule(leaves.max(device.joins), index, Event::Leave);
            }
        }
        while let Some(Reverse((now, _, device, event))) = self.events.pop() {
            self.happen(f64::from_bits(now), device, event);
        }
        let device_seconds: Vec<f64> = self.slots.iter().map(|slot| slot.useful_until).collect();
        SimulatedRun {
            seconds: device_seconds.iter().copied().fold(0.0, f64::max),
            device_seconds,
            vain_flops: self.vain_flops,
            claims: self.claims,
            copies: self.copies,
            unfinished: self.ledger.left,
        }
    }

    fn schedule(&mut self, at: f64, device: usize, event: Event) {
        self.scheduled += 1;
        let entry = (at.to_bits(), self.scheduled, device, event);
        self.events.push(Reverse(entry));
    }

    fn happen(&mut self, now: f64, device: usize, event: Event) {
        let slot = &mut self.slots[device];
        match event {
            Event::Join => {
                self.ledger.join(slot.device.kind);
                self.go_on(device, now);
            }
            Event::Leave => self.leave(device, now),
            Event::Lose => {
                self.ledger.leave(slot.device.kind);
                self.ledger.lose(device, now);
                for idle in 0..self.slots.len() {
                    if self.slots[idle].idle_since.is_some() {
                        self.go_on(idle, now);
                    }
                }
            }
            Event::Poll { turn } if slot.turn == turn => self.go_on(device, now),
            Event::End { turn } if slot.turn == turn => self.end(device, now),
            Event::Poll { .. } | Event::End { .. } => {}
        }
    }

    fn leave(&mut self, device: usize, now: f64) {
        self.renew(device, now);
        let slot = &mut self.slots[device];
        if slot.gone {
            return;
        }
        slot.gone = true;
        slot.turn += 1;
        slot.idle_since = None;
        slot.batch.clear();
        if let Some(current) = slot.current.take() {
            self.vain_flops += self.done(device, current, now);
        }
        self.schedule(now + self.times.lease, device, Event::Lose);
    }

    /// A device ends or stops what it is at.
    fn end(&mut self, device: usize, now: f64) {
        self.renew(device, now);
        let slot = &mut self.slots[device];
        let Some(current) = slot.current.take() else {
            return;
        };
        let attempt = &self.ledger.attempts[current.attempt];
        let flops = self.ledger.flops[attempt.shard];
        if current.stops {
            self.vain_flops += self.done(device, current, now);
        } else if attempt.ended_at.is_some() {
            self.vain_flops += flops;
        } else {
            let seconds = now - current.started_at;
            slot.useful_until = now;
            if seconds > 0.0 {
                slot.measured = Some(flops / seconds);
            }
            let kind = slot.device.kind;
            for other in self.ledger.count(current.attempt, kind, seconds, now) {
                self.supersede(other);
            }
        }
        self.go_on(device, now);
    }

    /// Stops an attempt that has ended in the ledger, if it has begun.
    fn supersede(&mut self, attempt: usize) {
        let device = self.ledger.attempts[attempt].device;
        let current = self.slots[device].current;
        if let Some(current) = current.filter(|current| current.attempt == attempt) {
            self.begin(device, attempt, current.started_at);
        }
    }

    /// A device begins its next shard, claims some, or waits.
    fn go_on(&mut self, device: usize, now: f64) {
        while let Some(attempt) = self.slots[device].batch.pop_front() {
            if self.learns(attempt) > now {
                return self.begin(device, attempt, now);
            }
        }
        let slot = &self.slots[device];
        if slot.gone || self.ledger.left == 0 {
            return;
        }
        let claimant = Claimant {
            device,
            kind: slot.device.kind,
            measured: slot.measured,
        };
        let mut claimed = self.ledger.claim(&claimant, now);
        if claimed.is_empty() {
            for other in self.ledger.busy(&claimant) {
                self.renew(other, now);
            }
            claimed.extend(self.ledger.copy(&claimant, now));
            self.copies += claimed.len() as u64;
        }
        let mut claimed = VecDeque::from(claimed);
        if let Some(first) = claimed.pop_front() {
            self.claims += 1;
            self.slots[device].batch = claimed;
            self.begin(device, first, now + self.times.claim);
        } else {
            let slot = &mut self.slots[device];
            slot.turn += 1;
            let turn = slot.turn;
            let idle = now - *slot.idle_since.get_or_insert(now);
            self.schedule(
                now + self.times.poll.max(idle / 10.0),
                device,
                Event::Poll { turn },
            );
        }
    }

    /// A device is at an attempt from `start` on, until it has finished or learns that it need not.
    fn begin(&mut self, device: usize, attempt: usize, start: f64) {
        let learns = self.learns(attempt);
        let ends = &self.shards[self.ledger.attempts[attempt].shard];
        let slot = &mut self.slots[device];
        let end = slot.device.end(start, ends.last().copied().unwrap_or(0.0));
        let stop = if learns < end {
            let done = slot.device.work(start, learns);
            let micro_batch = ends.partition_point(|&end| end < done);
            let work = ends.get(micro_batch).or(ends.last());
            slot.device.end(start, work.copied().unwrap_or(0.0))
        } else {
            end
        };
        slot.turn += 1;
        slot.idle_since = None;
        slot.current = Some(Current {
            attempt,
            started_at: start,
            stops: stop < end,
        });
        let turn = slot.turn;
        if stop.is_finite() {
            self.schedule(stop, device, Event::End { turn });
        } else {
            self.schedule(start, device, Event::Leave);
        }
    }

    /// When the device of an attempt learns that it has ended: with a renewal after that.
    fn learns(&self, attempt: usize) -> f64 {
        let attempt = &self.ledger.attempts[attempt];
        let Some(ended_at) = attempt.ended_at else {
            return f64::INFINITY;
        };
        let joined = self.slots[attempt.device].device.joins;
        let renewals = ((ended_at - joined) / self.times.heartbeat).floor() + 1.0;
        joined + renewals * self.times.heartbeat
    }

    /// Operations of the micro-batches that a device has finished of its shard.
    fn done(&self, device: usize, current: Current, now: f64) -> f64 {
        let ends = &self.shards[self.ledger.attempts[current.attempt].shard];
        // A micro-batch that ends now has ended, however its time was rounded.
        let work = self.slots[device].device.work(current.started_at, now) * (1.0 + 1e-9);
        let finished = ends.partition_point(|&end| end <= work);
        finished.checked_sub(1).map_or(0.0, |last| ends[last])
    }

    /// Makes up for the renewals of a device until `now`: the last one told the ledger when each of
    /// its attempts should end, by the rate of the shard that it was at. Before that shard's first
    /// micro-batch had ended it had nothing to tell.
    fn renew(&mut self, device: usize, now: f64) {
        let slot = &self.slots[device];
        let joined = slot.device.joins;
        let heartbeat = self.times.heartbeat;
        let renewal = joined + ((now - joined) / heartbeat).floor() * heartbeat;
        let Some(current) = slot.current.filter(|_| renewal > slot.renewed_at) else {
            return;
        };
        let done = self.done(device, current, renewal);
        if done == 0.0 {
            return;
        }
        let rate = done / (renewal - current.started_at);
        let mut left = -done;
        let slot = &mut self.slots[device];
        slot.renewed_at = renewal;
        for &attempt in [current.attempt].iter().chain(&slot.batch) {
            let attempt = &mut self.ledger.attempts[attempt];
            left += self.ledger.flops[attempt.shard];
            attempt.expected_at = Some(renewal + left / rate);
        }
    }
}
