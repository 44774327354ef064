"""Weekly numbers of support tickets within one yearly budget, on made-up tickets.

``python benchmarks/weekly_counts.py [--tickets 26000] [--epsilon 1] [--page FILE]``

The tickets are made of templates: seven subjects, four products, 6,000 customers, 52
weeks of 2026; batteries fail in June and July, and parcels are late in December. A
model of 20 topics is fitted at epsilon 4 to as many tickets of the year before. Each
week of 2026 is counted as a part of the ledger. The first table has the cost of the
year, how many of all numbers the 95% intervals hold (before the cut at 0), and how far
numbers of topics that are shown are from those without noise. The second has the price
of counting customers in at most C weeks: the noise, and the share of the tickets that
count.
"""

import argparse
import math
import warnings
from datetime import date, timedelta

import numpy as np

from dplda import PrivateTopicModel, TopicCounts, private_topic_counts
from dplda.privacy import Ledger

SUBJECTS = {
    "login": "password account login code email locked reset session phone refused",
    "billing": "invoice charge card refund payment tax renewal price discount cancel",
    "parcel": "parcel delivery late damaged box address courier customs order wrong",
    "crash": "crash screen error driver freeze update export file start closed",
    "battery": "battery charger hot cable power drain hours charge original noise",
    "network": "wifi router signal connection slow printer headphones drop call speed",
    "wishes": "feature language report search calendar filter keyboard dark add view",
}
USUAL = "please help since yesterday again today customer service problem thanks"
PRODUCTS = {
    "phone": (2, 1, 1, 1, 4, 2, 1),
    "laptop": (1, 1, 1, 4, 2, 2, 1),
    "cloud": (4, 2, 0, 1, 0, 2, 3),
    "shop": (1, 4, 5, 0, 0, 0, 1),
}
CAPS = (1, 4, 8, 16, 52)


def tickets(n_tickets, rng):
    """Texts, customers and weeks."""
    weight = rng.lognormal(0, 1, 6000)
    customers = rng.choice(6000, n_tickets, p=weight / weight.sum())
    days = rng.integers(0, 364, n_tickets)
    words = [text.split() for text in SUBJECTS.values()]
    texts, weeks = [], []
    for day in days:
        when = date(2025, 12, 29) + timedelta(days=int(day))  # a Monday
        odds = np.array(PRODUCTS[rng.choice([*PRODUCTS])], float)
        odds[4] *= 3 if when.month in (6, 7) else 1
        odds[2] *= 2.5 if when.month == 12 else 1
        subject = rng.choice(7, p=odds / odds.sum())
        length = rng.integers(8, 30)
        own = rng.choice(words[subject], length)
        texts.append(" ".join([*own, *rng.choice(USUAL.split(), length // 2)]))
        weeks.append("{}-W{:02}".format(*when.isocalendar()[:2]))
    return np.array(texts, object), customers, np.array(weeks, object)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tickets", type=int, default=26_000)
    parser.add_argument("--epsilon", type=float, default=1.0, help="of a week")
    parser.add_argument("--page", help="file for the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    before, _, _ = tickets(options.tickets, rng)
    texts, customers, weeks = tickets(options.tickets, rng)
    levels = sorted(set(weeks.tolist()))  # the calendar of 2026
    model = PrivateTopicModel(20, epsilon=4.0).fit(before)
    ledger = Ledger(epsilon=options.epsilon)
    tables = []
    for week in levels:
        own = texts[weeks == week]
        tables.append(
            private_topic_counts(
                model,
                own,
                by={"week": [week] * len(own)},
                levels={"week": [week]},
                epsilon=options.epsilon,
                ledger=ledger.part(week, by="week"),
            )
        )
    year = TopicCounts.joined(tables)
    given = {"by": {"week": weeks}, "levels": {"week": levels}}
    exact = private_topic_counts(model, texts, epsilon=math.inf, **given)
    counts = exact.counts["week"]
    held = np.abs(year.counts["week"] - counts) <= year.margin()
    shown = ~model.weak_topics_
    error = (year.counts["week"] - counts)[:, shown].std()
    print("| weeks | cost of the year | numbers | held | noise | mean number | real |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {len(levels)} | {ledger.epsilon_spent:.3g} | {held.size} "
        f"| {held.mean():.1%} | {error:.3g} | {counts[:, shown].mean():.3g} "
        f"| {year.real_share(np.flatnonzero(shown))['week']:.0%} |\n"
    )
    print("| most weeks of a customer | noise | tickets that count |")
    print("| --- | --- | --- |")
    seen = {}
    for customer, week in zip(customers, weeks):
        seen.setdefault(customer, set()).add(week)
    for most in CAPS:
        capped = private_topic_counts(
            model,
            texts,
            epsilon=options.epsilon,
            user_ids=customers,
            most_groups={"week": most},
            **given,
        )
        first = {customer: sorted(own)[:most] for customer, own in seen.items()}
        share = np.mean([w in first[c] for c, w in zip(customers, weeks)])
        print(f"| {most} | {capped.noise_scale:.3g} | {share:.0%} |")
    if options.page:
        model.report(options.page, title="Support tickets", counts=[year])


if __name__ == "__main__":
    main()
