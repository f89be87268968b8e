"""What a worker has of the others: places for what is only read, and a line for what is to be done."""

from __future__ import annotations

from dataclasses import dataclass

from app.metrics.meter import Meter
from app.process.scoreboard import Place
from app.process.team import Team
from app.serving.dataplane import DataPlane


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other workers, as one sees them.

    Args:
        figures: where they leave what /metrics tells.
        tallies: where they leave what their models have done.
        team: the way to have something done by all.
    """

    index: int
    figures: Place
    tallies: Place
    team: Team

    def join(self, plane: DataPlane, meter: Meter) -> None:
        """Be one of them: count on, begin with what they were told, and tell of all."""
        meter.join(self.figures, self.index)
        plane.store.tallies.begin(self.tallies.own())
        plane.store.tallies.others = self.tallies.others
        plane.store.tallies.publish = lambda: self._leave_tallies(plane)
        plane.commands.join(self.team, self.team.begun)

    def publish(self, plane: DataPlane, meter: Meter) -> None:
        """Let the others tell of this one."""
        meter.publish()
        self._leave_tallies(plane)

    def _leave_tallies(self, plane: DataPlane) -> None:
        self.tallies.write(plane.store.tallies.to_bytes(plane.store.entries))
