"""All paths"""
    # Paths

    def _run_groups(self) -> None:
        machine = self._run.machine
        self._enter()
        states: dict[tuple[int, int], State] = {(-1, 0): machine.state}
        end = next(number for number, block in enumerate(self._walk.blocks) if not block.steps and not block.successors)
        for group in self._walk.groups:
            if is_loop(self._walk, group):
                self._run_loop(group, states)
                continue
            (number,) = group
            machine.state = self._arrive(number, states, keep=False)
            if number == end:
                self._leave()
                return
            self._run_block(number)
            self._hand_on(number, states)

    def _arrive(self, number: int, states: dict[tuple[int, int], State], *, keep: bool) -> State:
        """The state at the start of a block, without what comes from rounds of a loop that it is the head of."""
        edges = [(-1, 0)] if number == 0 else []
        edges += [
            (origin, number)
            for origin in self._walk.blocks[number].predecessors
            if not self._walk.is_back(origin, number)
        ]
        found = [states[edge].copy() if keep else states.pop(edge) for edge in edges]
        count = len(self._walk.blocks)
        for state in found if self._run.in_loop else ():
            forget_older(state, {number, number + count})
        return join(self._run.machine, self._run.agreement, number + count if number in self._loops else number, found)

    def _hand_on(self, number: int, states: dict[tuple[int, int], State]) -> None:
        successors = self._walk.blocks[number].successors
        for successor in successors[1:]:
            states[number, successor] = self._run.machine.state.copy()
        if successors:
            states[number, successors[0]] = self._run.machine.state

    def _run_loop(self, group: Sequence[int], states: dict[tuple[int, int], State]) -> None:
        """Execute blocks that lead to each other, round after round until nothing new is found."""
        self._run.in_loop = True
        kept = self._violations
        for _ in range(_MOST_ROUNDS):
            known = self._run.agreement.known
            self._violations = []
            reads = self._run.reads
            inside = self._run_round(group, states)
            settled = self._settle(group, states, inside)
            if self._run.agreement.known != known:
                for number in group:
                    if number in self._loops:
                        self._loops[number] = Loop(number, self._loops[number].merges)
            elif settled:
                break
            self._run.reads = reads
        else:
            raise NotFollowedError("its loops are too large to be followed")
        kept.extend(self._violations[: _MOST_VIOLATIONS - len(kept)])
        self._violations = kept
        for edge in [edge for edge in states if edge[1] in group]:
            del states[edge]
        states.update({edge: state for edge, state in inside.items() if edge[1] not in group})
        self._run.in_loop = False

    def _run_round(self, group: Sequence[int], states: dict[tuple[int, int], State]) -> dict[tuple[int, int], State]:
        inside: dict[tuple[int, int], State] = {}
        self._outside: dict[int, State] = {}
        for number in group:
            state = self._arrive(number, {**states, **inside}, keep=True)
            if number in self._loops:
                self._run.machine.state = state
                self._start_rows(number)
                self._outside[number] = state
                state = self._loops[number].enter(self._run.machine, state)
            self._run.machine.state = state
            self._run_block(number)
            self._hand_on(number, inside)
        return inside

    def _settle(
        self, group: Sequence[int], states: dict[tuple[int, int], State], inside: dict[tuple[int, int], State]
    ) -> bool:
        settled = True
        for number in group:
            if number in self._loops:
                rounds = [
                    inside[origin, number]
                    for origin in self._walk.blocks[number].predecessors
                    if self._walk.is_back(origin, number)
                ]
                settled &= self._loops[number].settle(self._run.machine, self._run.agreement, self._outside[number], rounds)
        return settled

    def _start_rows(self, head: int) -> None:
        """What lies where rows are put together is of no interest before the first row is there."""
        for step in self._rows_first.get(head, ()):
            for side, position in enumerate((step.before, step.after)):
                (out,) = self._run.facts[side].code[position].writes
                tensor = self._run.facts[side].tensors[out]
                if out not in self._run.facts[side].roving and tensor.place is not None:
                    place = tensor.place
                    self._run.machine.memory(side, place[0]).write_content(
                        place[1], whole(self._run.no_rows(step.before), tensor.nbytes)
                    )
                    self._run.machine.state.log.entries.append((0, side, place[0], place[1], place[1] + tensor.nbytes))

    def _nothing(self, position: int) -> int:
        return self._run.symbols.number((OTHER, "no rows yet", position))

    def _run_block(self, number: int) -> None:
        self._block = number
        for step in self._walk.blocks[number].steps:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NotFollowedError(f"its control flow is too large: more than {_MOST_STEPS:,} steps")
            if step.who is Who.BOTH:
                self._run_both(step.before, step.after)
            else:
                side = 0 if step.who is Who.BEFORE else 1
                self._run_alone(side, step.before if side == 0 else step.after)

