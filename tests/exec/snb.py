"""A small social network after LDBC SNB, made for the schema and the queries of `examples/snb`."""

import random
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "snb"
PEOPLE, FORUMS, POSTS, COMMENTS = 24, 6, 60, 90
COUNTRIES = {"India": ["Pune", "Agra"], "Chile": ["Arica"], "Norway": ["Oslo", "Bergen"]}
CLASSES = {"Thing": None, "Work": "Thing", "Song": "Work", "Place": "Thing"}
TAGS = {"Yellow": "Song", "Blue": "Song", "Opera": "Work", "Fjord": "Place", "Peak": "Thing"}
START = datetime(2011, 1, 1, tzinfo=UTC)

Line = dict[str, Any]


def _node(kind: str, /, **data: Any) -> Line:
    return {"type": kind, "data": data}


def _edge(kind: str, source: Any, target: Any, /, **data: Any) -> Line:
    return {"edge": kind, "from": str(source), "to": str(target), "data": data}


def _at(minutes: int) -> str:
    return (START + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def lines(seed: int = 1) -> list[Line]:
    """The lines of a load. Numbers of messages differ, whether posts or comments."""
    chance = random.Random(seed)
    made = [*_places(), *_people(chance)]
    for number in range(FORUMS):
        made.append(_node("Forum", number=number, title=f"Forum {number}", created=_at(number)))
        members = chance.sample(range(PEOPLE), 8)
        made.append(_edge("Moderator", number, members[0]))
        for member in members:
            made.append(_edge("Member", number, member, joined=_at(chance.randrange(9000))))
    return made + list(_messages(chance))


def _places() -> Iterable[Line]:
    for country, cities in COUNTRIES.items():
        yield _node("Country", name=country)
        yield _node("Company", name=f"{country} Co")
        yield _edge("CompanyIn", f"{country} Co", country)
        for city in cities:
            yield _node("City", name=city)
            yield _edge("CityOf", city, country)
            yield _node("University", name=f"University of {city}")
            yield _edge("UniversityIn", f"University of {city}", city)
    for name, parent in CLASSES.items():
        yield _node("TagClass", name=name)
        if parent is not None:
            yield _edge("SubclassOf", name, parent)
    for tag, kind in TAGS.items():
        yield _node("Tag", name=tag)
        yield _edge("OfClass", tag, kind)


def _people(chance: random.Random) -> Iterable[Line]:
    cities = [city for each in COUNTRIES.values() for city in each]
    for number in range(PEOPLE):
        birthday = date(1980, 1, 1) + timedelta(days=chance.randrange(3650))
        yield _node(
            "Person",
            number=number,
            first=chance.choice(["Ada", "Bob", "Cid"]),
            last=chance.choice(["Lee", "Roy", "Zed"]),
            gender=chance.choice(["female", "male"]),
            birthday=birthday.isoformat(),
            created=_at(number),
            browser="Firefox",
        )
        yield _edge("LivesIn", number, chance.choice(cities))
        for tag in chance.sample(sorted(TAGS), 2):
            yield _edge("Interested", number, tag)
        if chance.random() < 0.6:
            school = f"University of {chance.choice(cities)}"
            yield _edge("StudyAt", number, school, year=chance.randrange(2000, 2010))
        for country in chance.sample(sorted(COUNTRIES), chance.randrange(3)):
            since = chance.randrange(2000, 2010)
            yield _edge("WorkAt", number, f"{country} Co", from_year=since)
    pairs = {tuple(sorted(chance.sample(range(PEOPLE - 2), 2))) for _ in range(30)}
    for a, b in sorted(pairs):
        yield _edge("Knows", a, b, since=_at(chance.randrange(9000)))


def _messages(chance: random.Random) -> Iterable[Line]:
    minutes: dict[int, int] = {}
    for number in range(POSTS + COMMENTS):
        kind = "Post" if number < POSTS else "Comment"
        after = 0
        if kind == "Comment":
            original = chance.randrange(number)
            after = minutes[original] + 1
            of = "ReplyTo_Post" if original < POSTS else "ReplyTo_Comment"
            yield _edge(of, number, original)
        minutes[number] = after + chance.randrange(4000)
        yield _node(kind, number=number, content=f"text {number}", created=_at(minutes[number]))
        yield _edge(f"CreatedBy_{kind}", number, chance.randrange(PEOPLE))
        yield _edge(f"SentFrom_{kind}", number, chance.choice(sorted(COUNTRIES)))
        for tag in chance.sample(sorted(TAGS), chance.randrange(3)):
            yield _edge(f"Tagged_{kind}", number, tag)
        if kind == "Post":
            yield _edge("Holds", chance.randrange(FORUMS), number)
        for person in chance.sample(range(PEOPLE), chance.randrange(3)):
            liked = _at(minutes[number] + chance.randrange(500))
            yield _edge(f"Likes_{kind}", person, number, at=liked)
