"""The question of a dry run as things are, and with room for the new subjects.

A subject that no stream captures reaches no mirror, source, republish or limit. So a dry run also
asks what there would be to find if the streams captured the new subjects, and if everything else
had room for them too, which is what a plan makes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nats_transform.accounts.sharing import NO_SHARES
from nats_transform.lint.obstacles import Obstacle, moved_services, obstacles
from nats_transform.mappings.moves import moves
from nats_transform.mappings.subject_index import Effort
from nats_transform.migration.findings import Layer
from nats_transform.migration.question import Question
from nats_transform.migration.room.dependents import streams_with_room, wide

_EFFORT, _EFFORT_A_MAPPING = 100_000, 20
"""Steps to find out what moves. Mappings that do not overlap take fewer."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a question.

    Attributes:
        questions: the question in each layer.
        obstacles: what the configuration alone shows, in each layer.
    """

    questions: dict[Layer, Question]
    obstacles: dict[Layer, list[Obstacle]]


def layers(question: Question) -> Layers:
    """The layers of a question, the first one as it is asked."""
    many = len(question.current.mappings) + len(question.candidate.mappings)
    effort = Effort(_EFFORT + _EFFORT_A_MAPPING * many)
    changing = moves(question.current, question.candidate, effort)
    if effort.is_spent:
        message = "so many mappings overlap that we didn't look at the room for new subjects"
        found: dict[Layer, list[Obstacle]] = {layer: [] for layer in Layer} | {
            Layer.NOW: [Obstacle("check-not-compared", "", message)]
        }
        return Layers(dict.fromkeys(Layer, question), found)
    both, refused = wide(question, changing)
    own = [
        entry for name in question.names for entry in question.shares.get(name, NO_SHARES).imports
    ]
    now = list(obstacles(changing, question.streams, own))
    stuck = {obstacle.about for obstacle in now}
    now += (each for each in moved_services(changing, own) if each.about not in stuck)
    return Layers(
        {
            Layer.NOW: question,
            Layer.ROOM: replace(question, streams=streams_with_room(question.streams, changing)),
            Layer.BOTH: both,
        },
        {
            Layer.NOW: now,
            Layer.ROOM: [],
            Layer.BOTH: refused,
        },
    )
