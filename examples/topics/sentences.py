"""Sentences that customers write to a shop, by topic. Some words and wordings are kept for tests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Final

# Alternatives are separated by |; {name} is a word list.
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "delivery": (
        "where is my {thing}", "my {thing} has not arrived {yet}", "the {thing} was supposed to come {when}",
        "when will the {thing} be delivered", "the tracking number for my {thing} does not work",
        "the courier left my {thing} at the wrong address", "is there any news about the shipment of my {thing}",
        "i am still waiting for the {thing} i ordered {when}", "how long does shipping to {place} take",
        "can you ship the {thing} to {place}", "the parcel with my {thing} is late", "has my {thing} been sent {yet}",
        "the package never reached {place}", "do you deliver to {place} {when}",
    ),
    "refund": (
        "i want my money back for the {thing}", "please refund the {thing}", "how do i return the {thing}",
        "i sent the {thing} back but got no refund {yet}", "the {thing} is {bad} and i would like a refund",
        "can i return a {thing} that i bought {when}", "how long until the refund for my {thing} is paid",
        "i would like to give the {thing} back", "you still owe me the money for the {thing}",
        "what is your policy for returns of a {thing}", "my return of the {thing} was refused, i want the money",
        "reimburse me for the {bad} {thing}", "the {thing} does not fit, may i return it",
        "who pays for sending the {thing} back",
    ),
    "payment": (
        "my card was declined when i paid for the {thing}", "i was charged twice for the {thing}",
        "the invoice for the {thing} shows a wrong amount", "can i pay for the {thing} by bank transfer",
        "please send me the invoice for my {thing}", "which cards do you accept", "the payment for my {thing} failed",
        "why is there a charge of {number} on my account", "may i pay for a {thing} in {number} instalments",
        "the bill says {number} although the {thing} costs less", "the voucher was not taken off the price",
        "i need a receipt for the {thing} from {when}", "paypal did not go through at checkout",
        "there is an extra fee of {number} on the bill",
    ),
    "account": (
        "i forgot my password", "i cannot log in {yet}", "how do i change my email address",
        "my account has been locked since {when}", "please delete my account", "the reset link does not work",
        "i want to change the address in my profile", "i never got the email to confirm my account",
        "someone else used my login {when}", "how can i turn off the newsletter",
        "the app does not accept my password", "my user name is wrong", "i get an error when i sign in",
        "can i have two accounts with the same email",
    ),
    "defect": (
        "the {thing} arrived {bad}", "my {thing} stopped working {when}", "the {thing} makes a strange noise",
        "a part of the {thing} is missing", "the {thing} does not turn on", "the screen of the {thing} is {bad}",
        "the battery of my {thing} is empty after {number} minutes", "the {thing} broke {when}",
        "the {thing} i received is {bad}", "there is a crack in the {thing}", "the {thing} gets too hot",
        "the buttons on the {thing} do nothing", "the {thing} smells burnt", "the {thing} leaks",
    ),
    "praise": (
        "i love the {thing}", "thank you for the quick help", "the {thing} is {good}", "{good} service, thanks",
        "best shop i ever bought a {thing} from", "the {thing} works perfectly",
        "my {person} is very happy with the {thing}",
        "everything was {good}, thank you", "your team was so friendly", "the {thing} is even better than i hoped",
        "i will buy a {thing} here again", "five stars for the {thing}", "what a {good} {thing}",
        "great job, my {person} loves it",
    ),
}  # fmt: skip
LABELS: Final = tuple(_PATTERNS)
_WORDS: Final = {
    "thing": "phone|laptop|chair|table|lamp|jacket|book|watch|kettle|bike|camera|printer|sofa|headset|toaster|blender|"
    "monitor|backpack|tent|drill|guitar|keyboard|carpet|heater|fan|helmet",
    "yet": "yet|so far|until now|at all|today|",
    "when": "yesterday|last week|on monday|two days ago|in march|this morning|before christmas|a month ago|on friday",
    "place": "vienna|france|my office|norway|berlin|the island|canada|my parents|rome",
    "bad": "broken|damaged|scratched|faulty|cracked|bent|torn|dented",
    "good": "great|wonderful|excellent|fantastic|superb|lovely|brilliant|amazing",
    "person": "wife|husband|son|daughter|mother|friend|team|grandfather",
    "number": "ten|20|35 euro|twelve|50 dollars|3|99|seven",
}
_OPENINGS: Final = ("", "", "", "hello, ", "hi, ", "dear team, ", "good morning, ", "excuse me, ", "hey, ")
_ENDINGS: Final = ("", "", "", "!", ".", "?", " please", ", thanks", " - can you help", ", order {number}")


def draw(chance: random.Random, *, has_new_words: bool, has_new_wording: bool) -> tuple[str, int]:
    """Return a sentence and the index of its topic.

    Args:
        chance: random numbers.
        has_new_words: whether words are the fourth of each list, which training never shows, or the others.
        has_new_wording: the same for wordings, every seventh.
    """
    topic = chance.randrange(len(LABELS))
    patterns = [text for at, text in enumerate(_PATTERNS[LABELS[topic]]) if (at % 7 == 6) == has_new_wording]
    text = chance.choice(_OPENINGS) + chance.choice(patterns) + chance.choice(_ENDINGS)

    def word(match: re.Match[str]) -> str:
        words = _WORDS[match[1]].split("|")
        return chance.choice(
            [each for at, each in enumerate(words) if (at % 4 == 3) == has_new_words or match[1] == "yet"]
        )

    return re.sub(r" +", " ", _misspelt(re.sub(r"\{(\w+)\}", word, text), chance)).strip(), topic


def _misspelt(text: str, chance: random.Random) -> str:
    """Exchange two letters of one sentence in six."""
    if chance.random() > 1 / 6 or len(text) < 4:
        return text
    at = chance.randrange(1, len(text) - 2)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def sentences(
    seed: int, count: int, *, has_new_words: bool = False, has_new_wording: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield so many sentences with their topics; see ``draw``."""
    chance = random.Random(seed)
    for _ in range(count):
        yield draw(chance, has_new_words=has_new_words, has_new_wording=has_new_wording)
