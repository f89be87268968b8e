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
        "any update on when the {thing} gets here", "the tracking page has shown the same status since {when}",
        "my order is still not here", "the driver never rang the bell", "it says delivered but there is no {thing}",
        "the shipment is stuck in customs", "please tell me the delivery date of the {thing}",
        "i need the {thing} before {when}, will it arrive", "i was not at home when the parcel came",
        "could you leave the package with my neighbour", "the {thing} went to my old address",
        "which courier brings the {thing}", "how much does express shipping to {place} cost",
        "my parcel has been on its way since {when}", "the delivery was announced for {when} but nothing came",
        "may i pick up the {thing} myself", "two parcels were sent and one is missing",
        "please hold the delivery until {when}", "when do you dispatch the order", "is the {thing} on its way",
        "the order was shipped to {place} by mistake", "do you have a tracking link for the {thing}",
        "the post office cannot find my package", "delivery to {place} takes too long",
        "i was told it would be shipped {when}", "when can i expect the {thing}",
    ),
    "refund": (
        "i want my money back for the {thing}", "please refund the {thing}", "how do i return the {thing}",
        "i sent the {thing} back but got no refund {yet}", "the {thing} is {bad} and i would like a refund",
        "can i return a {thing} that i bought {when}", "how long until the refund for my {thing} is paid",
        "i would like to give the {thing} back", "you still owe me the money for the {thing}",
        "what is your policy for returns of a {thing}", "my return of the {thing} was refused, i want the money",
        "reimburse me for the {bad} {thing}", "the {thing} does not fit, may i return it",
        "who pays for sending the {thing} back",
        "i have changed my mind and want to send the {thing} back", "where do i send the return",
        "my refund has not arrived {yet}", "you promised me a refund {when}", "please cancel the order and refund me",
        "the return label for the {thing} is missing", "i returned the {thing} {when}, where is my money",
        "can i exchange the {thing} for another one", "how many days do i have to return the {thing}",
        "is a refund possible without the box", "i only got half of my money back",
        "please take the {thing} back", "i do not want the {thing} any more, how do i return it",
        "the refund is too low", "when do i get my money back", "do i have to pay for the return of the {thing}",
        "i want a full refund", "may i give back a {thing} i have used", "my return was received {when}",
        "please pay back what i spent on the {thing}", "how does a return work", "i would rather have the money back",
        "the shop refuses to reimburse me", "i sent back the wrong {thing}", "can you refund the shipping costs",
        "how is the money for a return paid out",
    ),
    "payment": (
        "my card was declined when i paid for the {thing}", "i was charged twice for the {thing}",
        "the invoice for the {thing} shows a wrong amount", "can i pay for the {thing} by bank transfer",
        "please send me the invoice for my {thing}", "which cards do you accept", "the payment for my {thing} failed",
        "why is there a charge of {number} on my account", "may i pay for a {thing} in {number} instalments",
        "the bill says {number} although the {thing} costs less", "the voucher was not taken off the price",
        "i need a receipt for the {thing} from {when}", "paypal did not go through at checkout",
        "there is an extra fee of {number} on the bill",
        "the checkout says my credit card is not valid", "can i pay with paypal", "the price on the invoice is wrong",
        "i paid for the {thing} but the order shows as unpaid", "do you take cash",
        "the bank transfer of {number} was not booked", "why was {number} taken from my card twice",
        "my discount code does not work", "is there a fee for paying by card", "i need an invoice with my company name",
        "the payment page shows an error", "how do i pay the bill", "i was charged {number} too much",
        "please correct the invoice", "can i use two vouchers for one order", "the debit of {number} is unknown to me",
        "may i pay later", "i have not received a receipt {yet}", "the amount on the receipt differs from the price",
        "when will my card be charged", "the total at checkout is higher than the price of the {thing}",
        "could you split the bill", "do you accept payment by invoice", "the payment was cancelled by the bank",
        "which ways to pay are there", "i entered the wrong card number",
    ),
    "account": (
        "i forgot my password", "i cannot log in {yet}", "how do i change my email address",
        "my account has been locked since {when}", "please delete my account", "the reset link does not work",
        "i want to change the address in my profile", "i never got the email to confirm my account",
        "someone else used my login {when}", "how can i turn off the newsletter",
        "the app does not accept my password", "my user name is wrong", "i get an error when i sign in",
        "can i have two accounts with the same email",
        "i need a new password", "the login page keeps loading", "how do i sign up", "my profile shows the wrong name",
        "please change my email to the new one", "i cannot sign in on my phone", "the code for signing in never comes",
        "i want to close my account", "my account was hacked", "unsubscribe me from the newsletter",
        "how do i reset my password", "the site says my user name does not exist", "i am locked out",
        "can you merge my two accounts", "i do not get the confirmation email", "where do i see my data",
        "please remove my phone number from my profile", "my email address is not accepted",
        "is there a way to log in without a password", "the account of my {person} does not work {yet}",
        "i registered twice by mistake", "how do i turn on login with two steps", "the password rules are strange",
        "stop sending me emails", "i changed my name, how do i update it", "logging in fails since {when}",
    ),
    "defect": (
        "the {thing} arrived {bad}", "my {thing} stopped working {when}", "the {thing} makes a strange noise",
        "a part of the {thing} is missing", "the {thing} does not turn on", "the screen of the {thing} is {bad}",
        "the battery of my {thing} is empty after {number} minutes", "the {thing} broke {when}",
        "the {thing} i received is {bad}", "there is a crack in the {thing}", "the {thing} gets too hot",
        "the buttons on the {thing} do nothing", "the {thing} smells burnt", "the {thing} leaks",
        "the {thing} will not switch on", "after {number} minutes the {thing} switches off",
        "the cable of the {thing} is loose", "a screw for the {thing} is missing", "the {thing} is already broken",
        "the {thing} came without a manual and with a {bad} lid", "there is a scratch on the {thing}",
        "my {thing} does not charge", "the {thing} rattles", "the {thing} has a fault", "the handle came off {when}",
        "water comes out of the {thing}", "the light on the {thing} blinks red", "the {thing} is dead",
        "the zip of the {thing} is {bad}", "the {thing} smells of plastic", "the {thing} overheats",
        "one leg of the {thing} is shorter", "the {thing} shows an error", "the sound of the {thing} is distorted",
        "i opened the box and the {thing} was {bad}", "the {thing} worked for {number} days, then it stopped",
        "the paint comes off the {thing}", "the {thing} is not working properly", "the motor of the {thing} is noisy",
        "it broke the first time i used it",
    ),
    "praise": (
        "i love the {thing}", "thank you for the quick help", "the {thing} is {good}", "{good} service, thanks",
        "best shop i ever bought a {thing} from", "the {thing} works perfectly",
        "my {person} is very happy with the {thing}",
        "everything was {good}, thank you", "your team was so friendly", "the {thing} is even better than i hoped",
        "i will buy a {thing} here again", "five stars for the {thing}", "what a {good} {thing}",
        "great job, my {person} loves it",
        "thanks a lot", "i am so happy with my {thing}", "this is the best {thing} i have had", "you are {good}",
        "the quality of the {thing} is {good}", "very satisfied, thank you", "i recommend you to everybody",
        "really {good} work", "the {thing} looks {good}", "keep it up", "such kind people at the hotline",
        "my {person} says thank you for the {thing}", "i could not be happier", "perfect, just as described",
        "the {thing} was worth every cent", "a {good} experience from start to end", "well done", "great value",
        "thank you so much for your help", "the staff were very helpful", "i am impressed by the {thing}",
        "top quality and fast", "we all love the {thing}", "excellent advice from your team",
        "my compliments to the team", "it is a pleasure to shop here",
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
