"""SSA construction during lowering, after Braun et al., "Simple and Efficient Construction of SSA Form" (2013)."""

from __future__ import annotations

from perflint.analysis.ir.graph import Block, Graph, Outer, Phi, Value


class Variables:
    """The values of variables at the ends of blocks, while the graph is being built.

    All walks are loops: neither long code nor deep nesting exhausts Python's stack.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[tuple[str, Block], Value] = {}
        self._incomplete: dict[Block, list[Phi]] = {}
        self._sealed: set[Block] = set()
        self._replaced: dict[Value, Value] = {}

    def write(self, name: str, block: Block, value: Value) -> None:
        """Let `name` hold `value` from here to the end of `block`."""
        self._values[name, block] = value

    def read(self, name: str, block: Block) -> Value:
        """What `name` holds at this point of `block`."""
        if (name, block) not in self._values:
            self._complete(self._search(name, [block]))
        return self.current(self._values[name, block])

    def seal(self, block: Block) -> None:
        """All predecessors of `block` are known from now on."""
        self._sealed.add(block)
        phis = self._incomplete.pop(block, [])
        for phi in phis:
            self._complete([*self._search(phi.name, [*block.predecessors]), phi])

    def current(self, value: Value) -> Value:
        """What stands for `value` now that phis of one operand are gone."""
        while (other := self._replaced.get(value)) is not None:
            value = other
        return value

    def _search(self, name: str, pending: list[Block]) -> list[Phi]:
        """Give `name` a value in these blocks and in all that it comes from; the new phis, without operands yet."""
        phis: list[Phi] = []
        straight: list[Block] = []
        while pending:
            block = pending.pop()
            if (name, block) in self._values:
                continue
            if block in self._sealed and len(block.predecessors) == 1:
                straight.append(block)
                pending.append(block.predecessors[0])
            elif block in self._sealed and not block.predecessors:
                self.write(name, block, Outer(name))
            else:
                phi = Phi(name, block=block)
                self.write(name, block, phi)
                if block in self._sealed:
                    phis.append(phi)
                    pending += block.predecessors
                else:
                    self._incomplete.setdefault(block, []).append(phi)
        for block in reversed(straight):
            self.write(name, block, self._values[name, block.predecessors[0]])
        return phis

    def _complete(self, phis: list[Phi]) -> None:
        for phi in phis:
            for block in phi.block.predecessors:
                phi.operands[block] = value = self.current(self._values[phi.name, block])
                if isinstance(value, Phi):
                    value.users.append(phi)
            self._graph.phis.setdefault(phi.block, []).append(phi)
        self._simplify(phis)

    def _simplify(self, pending: list[Phi]) -> None:
        """Let the value that a phi always is stand for the phi."""
        while pending:
            phi = pending.pop()
            only = self._only_operand(phi) if phi not in self._replaced else None
            if only is None:
                continue
            self._replaced[phi] = only
            self._graph.phis[phi.block].remove(phi)
            if isinstance(only, Phi):
                only.users += phi.users
            pending += [user for user in phi.users if user.operands]

    def _only_operand(self, phi: Phi) -> Value | None:
        """The one value, besides itself, that a phi always is; None where it may be several."""
        only: Value | None = None
        for operand in phi.operands.values():
            value = self.current(operand)
            if value is phi or value is only:
                continue
            if only is not None:
                return None
            only = value
        return only
