"""A graph worth looking at: branches, tags, a merge, a conflict that waits, blobs, a hub."""

import base64

import omnigraph as og

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  city: String? @index
  role: enum(member, lead)?
  photo: Blob?
  joined: DateTime?
  tags: [String]?
  @range(age, 0..150)
}
node Company { name: String @key  founded: Date? }
node Note { title: String  text: String? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { title: String? }
edge Wrote: Person -> Note
"""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
MOVE = "query move($n: String, $c: String) { update Person set { city: $c } where name = $n }"
MET = "query met($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
NAMES = ("Ada", "Bob", "Cy", "Dee", "Eve", "Flo", "Gus", "Hal")


def seeded_graph(uri: str, people: int = 70, more_commits: int = 46) -> None:
    """Make the graph at an address."""
    with og.init(uri, schema=SCHEMA) as graph:
        graph.load(_lines(people).encode(), "merge", actor="act-load", message="the first people")
        for number in range(more_commits):
            graph.mutate(ADD, {"n": f"Guest {number}", "a": number}, actor=f"act-{number % 3}")
        graph.tags.create("v1", "main")
        graph.branches.create("review/move")
        graph.mutate(MOVE, {"n": "Ada", "c": "Bergen"}, branch="review/move", actor="act-ada")
        graph.mutate(MET, {"a": "Bob", "b": "Cy"}, branch="review/move", actor="act-bob")
        graph.mutate(MOVE, {"n": "Bob", "c": "Rome"}, actor="act-bob", message="Bob moves to Rome")
        graph.branches.merge("review/move", message="moves, reviewed", actor="act-bob")
        graph.branches.create("review/conflict")
        graph.mutate(MOVE, {"n": "Cy", "c": "Oslo"}, branch="review/conflict", actor="act-cy")
        graph.mutate(MOVE, {"n": "Cy", "c": "Paris"}, actor="act-dee", message="Cy goes to Paris")
        graph.branches.create("empty")
        review = graph.reviews.open("review/conflict", title="Cy moves", actor="act-cy")
        graph.reviews.comment(
            review.id, "To Oslo?", entity=("node", "Person", "Cy"), actor="act-bob"
        )
        graph.reviews.comment(review.id, "Who?", entity=("node", "Person", "Nobody"))
        graph.reviews.approve(review.id, actor="act-dee")
        graph.mutate(MOVE, {"n": "Eve", "c": "Oslo"}, branch="review/conflict", actor="act-cy")
        ended = graph.reviews.open("empty", title="Nothing", actor="act-cy")
        graph.reviews.close(ended.id, actor="act-bob")


def _lines(people: int) -> str:
    lines = [
        '{"type":"Company","data":{"name":"Acme","founded":"1990-05-01"}}',
        '{"type":"Note","data":{"id":"n1","title":"Hello","text":"line one\\nline two"}}',
    ]
    names = [*NAMES, *(f"Person {n}" for n in range(people))]
    for number, name in enumerate(names):
        photo = f',"photo":"base64:{PIXEL}"' if name == "Ada" else ""
        lines.append(
            f'{{"type":"Person","data":{{"name":"{name}","age":{20 + number % 50},'
            f'"joined":"2024-01-{1 + number % 28:02d}T10:00:00Z","tags":["a","b"]{photo}}}}}'
        )
        lines.append(f'{{"edge":"WorksAt","from":"{name}","to":"Acme","data":{{"title":"Maker"}}}}')
        if name != "Ada":
            lines.append(f'{{"edge":"Knows","from":"Ada","to":"{name}","data":{{"since":2020}}}}')
    return "\n".join(lines) + "\n"


assert base64.b64decode(PIXEL)
