//! Tables in Markdown.

use std::fmt::Write as _;

use assay_scoring::Strategy;

use crate::scenarios::{Compared, Ran};

const HEAD: &str = "\
# Simulated runs

Written by `scripts/bench-simulation.sh`. Virtual time: the plan that a job would run by, claimed by
the ledger's rules, with 5 ms for each claim; nothing else is lost. `random`, `even` and `length`
compute whole documents in the same windows, without any such loss; of 21 draws of `random` the
median is shown. The model is a llama of 134.5 million parameters in float32, a core does 0.15 and a
GPU 20 TFLOP/s. Seconds are those until a device has had its last result counted; the lower bound is
all work over all devices, or the longest window on the fastest one.
";

const PUBLISHED: &str = "
## Beside a published measurement

An article on distributed perplexity gives these for 8 nodes and WikiText-103, measured with its own
model on its own cluster. Nothing was run here, and the documents are other ones: what can be
compared is how far each strategy is from even.

| strategy | max s | mean s | standard deviation s | max / mean | the same of WikiText-2 on 8 cores above |
| --- | --: | --: | --: | --: | --: |
";

/// Standard deviation over devices, largest and mean.
pub(crate) struct Spread {
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Spread {
    pub(crate) fn of(seconds: &[f64]) -> Self {
        let devices = seconds.len() as f64;
        let mean = seconds.iter().sum::<f64>() / devices;
        let squares: f64 = seconds.iter().map(|second| (second - mean).powi(2)).sum();
        Self {
            max: seconds.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: (squares / devices).sqrt(),
        }
    }
}

pub(crate) fn label(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Random => "random",
        Strategy::Even => "even",
        Strategy::Length => "length",
        Strategy::Dynamic => "dynamic",
    }
}

pub(crate) fn all(compared: &[Compared], runs: &[Ran]) -> String {
    let mut text = String::from(HEAD);
    for scenario in compared {
        table(&mut text, scenario);
    }
    if let Some(first) = compared.first() {
        published(&mut text, first);
    }
    changes(&mut text, runs);
    text
}

fn table(text: &mut String, scenario: &Compared) {
    let Compared {
        name,
        documents,
        comparison,
        ..
    } = scenario;
    let bound = comparison.lower_bound_seconds;
    write!(
        text,
        "\n## {name}\n\n{documents} documents, {} windows, {} shards; lower bound {bound:.3} s.\n\n\
         | strategy | max s | mean s | standard deviation s | max / mean | max / lower bound |\n\
         | --- | --: | --: | --: | --: | --: |\n",
        comparison.windows, comparison.shards,
    )
    .expect("writing to a string succeeds");
    for (strategy, seconds) in comparison.strategies.iter().rev() {
        let Spread {
            max,
            mean,
            deviation,
        } = Spread::of(seconds);
        writeln!(
            text,
            "| {} | {max:.3} | {mean:.3} | {deviation:.3} | {:.4} | {:.4} |",
            label(*strategy),
            max / mean,
            max / bound
        )
        .expect("writing to a string succeeds");
    }
}

fn published(text: &mut String, wikitext: &Compared) {
    text.push_str(PUBLISHED);
    for (strategy, max, mean, deviation) in [
        (Strategy::Dynamic, 156.0, 145.0, 8.7),
        (Strategy::Even, 173.0, 148.0, 21.3),
        (Strategy::Random, 187.0, 152.0, 32.6),
    ] {
        let strategies = &wikitext.comparison.strategies;
        let ours = strategies.iter().find(|(other, _)| *other == strategy);
        let ours = Spread::of(ours.map_or(&[], |(_, seconds)| seconds));
        writeln!(
            text,
            "| {} | {max} | {mean} | {deviation} | {:.3} | {:.3} |",
            label(strategy),
            max / mean,
            ours.max / ours.mean
        )
        .expect("writing to a string succeeds");
    }
}

fn changes(text: &mut String, runs: &[Ran]) {
    text.push_str(
        "\n## Devices that change\n\nOnly `dynamic` notices. 2,000 documents of \
         log-normal lengths, window 512. The lower\nbound is when the devices, as they are, could \
         have done all work without a rest.\n\n\
         | devices | max s | max / lower bound | shards | claims | copies | in vain |\n\
         | --- | --: | --: | --: | --: | --: | --: |\n",
    );
    for Ran {
        name,
        run,
        flops,
        least,
        shards,
    } in runs
    {
        writeln!(
            text,
            "| {name} | {:.3} | {:.4} | {shards} | {} | {} | {:.2} % |",
            run.seconds,
            run.seconds / least,
            run.claims,
            run.copies,
            100.0 * run.vain_flops / flops
        )
        .expect("writing to a string succeeds");
    }
}
