"""Makes a small corpus in which numbers show the order of the sentences.

The documents are instructions with numbered steps, and chronicles with rising years.
Their words are drawn from lists. A small model learns their sentence order within
minutes, which tests the complete way from text to loss.

    python examples/ordered_corpus.py --output_file=ordered.txt --vocab_file=words.txt
"""

import argparse
import random
import re
from collections.abc import Iterator

from albert_tf.data.files import atomic

# {product: its steps}. Instructions have four or more of the steps, in random order.
CRAFTS = {
    "wooden chair": (
        "cut the legs|sand the seat|drill four holes|glue the joints|paint the back|"
        "polish the frame|oil the wood|bend the arms"
    ),
    "vegetable soup": (
        "wash the carrots|peel the potatoes|slice the onions|boil the water|"
        "fry the leeks|stir the broth|add some salt|chop the parsley"
    ),
    "bicycle": (
        "clean the chain|oil the gears|check the brakes|pump the tyres|"
        "raise the saddle|fit the bell|turn the pedals|straighten the wheels"
    ),
    "winter coat": (
        "measure the sleeves|cut the cloth|pin the collar|sew the pockets|iron the hem|"
        "line the back|mark the seams|choose the buttons"
    ),
    "kitchen garden": (
        "dig the beds|rake the soil|water the roses|weed the paths|plant the herbs|"
        "cover the seeds|prune the trees|mend the fence"
    ),
    "paper kite": (
        "fold the paper|trim the corners|tape the edges|tie the tail|wind the string|"
        "cross the sticks|test the knots|draw a face"
    ),
}
STEPS = (
    "Step {number}: {action} with great care.",
    "Step {number} is to {action} before you go on.",
    "In step {number} you {action} and take a short rest.",
)
PLACES = (
    "the old mill",
    "the harbour",
    "the castle",
    "the lighthouse",
    "the village school",
    "the railway station",
    "the stone bridge",
    "the small chapel",
)
NAMES = (
    "Ada",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Irene",
    "Jack",
    "Laura",
    "Martin",
)
DEEDS = (
    "painted the walls",
    "planted an oak tree",
    "mended the roof",
    "opened a new gate",
    "bought a clock",
    "built a tall tower",
    "sold the north field",
    "repaired the stairs",
)
YEARS = (
    "In {year} {first} and {second} {deed}.",
    "{first} {deed} in {year} with some help.",
    "The year {year} was good, and {second} {deed}.",
)


def instructions(rng: random.Random) -> Iterator[str]:
    """Yields the sentences of numbered instructions."""
    craft = rng.choice(sorted(CRAFTS))
    actions = CRAFTS[craft].split("|")
    rng.shuffle(actions)
    del actions[rng.randint(4, 8) :]
    yield f"This is how to make a good {craft} in {len(actions)} steps."
    for number, action in enumerate(actions, start=1):
        yield rng.choice(STEPS).format(number=number, action=action)
    yield f"After step {len(actions)} the {craft} is ready."


def chronicle(rng: random.Random) -> Iterator[str]:
    """Yields the sentences of a chronicle, with rising years."""
    place = rng.choice(PLACES)
    first, second = rng.sample(NAMES, 2)
    year = rng.randint(1850, 1880)
    yield f"This is the chronicle of {place} since {year}."
    for deed in rng.sample(DEEDS, rng.randint(4, 8)):
        yield rng.choice(YEARS).format(year=year, first=first, second=second, deed=deed)
        year += rng.randint(1, 4)
    yield f"The chronicle of {place} ends in {year}."


def documents(count: int, seed: int) -> list[str]:
    """Returns `count` documents, half of them of each kind."""
    rng = random.Random(seed)
    kinds = (instructions, chronicle)
    return ["\n".join(kinds[n % 2](rng)) + "\n" for n in range(count)]


def vocabulary(texts: list[str]) -> list[str]:
    """Returns a WordPiece vocabulary in which each word of the documents is one token.

    With so few words, SentencePiece would divide most words into several tokens.
    """
    words = set(re.findall(r"\w+|[^\w\s]", "\n".join(texts).lower()))
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]


def write(path: str, text: str) -> None:
    """Writes a file; it appears when it is complete."""
    with atomic(path) as file:
        file.write(text.encode())


def main() -> None:
    """Writes the corpus and its vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    texts = documents(args.documents, args.seed)
    words = vocabulary(texts)
    write(args.vocab_file, "\n".join(words) + "\n")
    write(args.output_file, "\n".join(texts))
    print(f"{args.output_file}: {len(texts):,} documents, {len(words)} words")


if __name__ == "__main__":
    main()
