"use strict";
// A program: what it is, whether it was verified, its memory, its file, its methods.

/** Everything about a program; `charts` are to be drawn once it is in the page. */
function programView(program) {
  for (const { buffers } of program.methods) for (const buffer of buffers) delete buffer.compared; // By a comparison.
  const charts = [];
  const parts = [summary(program)];
  if (program.problem)
    parts.push(section("Program", element("p", { class: "failed" }, `The file cannot be read: ${program.problem}`)));
  parts.push(verification(program));
  if (program.methods.length) parts.push(...methodSections(program, charts));
  if (program.files.length) parts.push(filesView(program, charts));
  if (program.notes.length)
    parts.push(section("Notes", element("ul", {}, ...program.notes.map((note) => element("li", {}, ...withCode(note))))));
  return { view: element("div", {}, contents(parts), ...parts), charts };
}

function section(title, ...children) {
  const id = title.toLowerCase().replaceAll(" ", "-");
  return element("section", { id }, element("h2", {}, title), ...children);
}

/** Links to the sections, and to the parts of sections, that have an id. */
function contents(sections) {
  const titles = sections.filter((part) => part.id).flatMap((part) => [...part.querySelectorAll("h2, h3[id]")]);
  const link = (title) => element("a", { href: `#${title.id || title.parentElement.id}` }, title.textContent);
  return element("nav", { class: "contents", "aria-label": "Contents" }, ...titles.map(link));
}

function summary(program) {
  const tile = (label, value, more, kind) =>
    element(
      "div",
      { class: "tile" },
      element("div", { class: "label" }, label),
      element("div", { class: kind ? `value ${kind}` : "value" }, value),
      element("div", { class: "faint" }, more || ""),
    );
  const tiles = [
    tile("file", size(program.size), `${grouped(program.size)} bytes`),
    ...program.files.slice(1).map((file) => tile("external weights", size(file.size), `${grouped(file.size)} bytes`)),
    ...Object.entries({ ...zeros(program.nested), ...program.memory }).map(([device, bytes]) =>
      tile(
        `planned memory, ${device}`,
        size(bytes),
        `${grouped(bytes)} bytes${program.nested[device] ? `, and ${size(program.nested[device])} in delegates` : ""}`,
      ),
    ),
    program.status ? tile("build", program.verdict, checkCounts(program), buildClass(program)) : null,
  ];
  const lines = [...program.facts, ["SHA-256", program.sha256]];
  return element("section", {}, element("div", { class: "tiles" }, ...tiles.filter(Boolean)), facts(lines));
}

/** The same keys, each with 0. */
function zeros(numbers) {
  return Object.fromEntries(Object.keys(numbers).map((key) => [key, 0]));
}

function buildClass(program) {
  if (program.status !== "built") return "failed";
  return program.verified ? "passed" : "not-run";
}

/** `6 passed, 5 not needed`. */
function checkCounts(program) {
  const counts = new Map();
  for (const { status } of program.checks) counts.set(status, (counts.get(status) || 0) + 1);
  return [...counts].map(([status, count]) => `${count} ${status}`).join(", ");
}

function verification(program) {
  if (!program.checks.length)
    return section(
      "Verification",
      element("p", {}, `There are no results: ${program.unverified || "the build did not verify"}.`),
    );
  const common = commonAnswer(program.checks);
  if (common) return section("Verification", element("p", { class: program.checks[0].status.replace(" ", "-") }, common));
  const status = (check) => element("span", { class: check.status.replace(" ", "-") }, check.status);
  const said = (check) =>
    element("div", {}, ...withCode(check.summary), ...check.details.map((text) => element("p", { class: "faint" }, ...withCode(text))));
  return section(
    "Verification",
    dataTable({
      rows: program.checks,
      columns: [
        { title: "name", text: (check) => check.name },
        { title: "answer", text: (check) => check.status, cell: status },
        { title: "details", wide: true, text: (check) => [check.summary, ...check.details].join(" "), cell: said },
      ],
    }),
  );
}

/** One sentence for several checks with the same result and the same reason; null if they differ. */
function commonAnswer(checks) {
  const [first, ...others] = checks;
  const isSame = (check) => check.status === first.status && check.summary === first.summary && !check.details.length;
  if (!others.length || !checks.every(isSame)) return null;
  const answer = first.status === "not run" ? "No check ran" : `All checks have the result "${first.status}"`;
  return `${answer}: ${first.summary} (${grouped(checks.length)} checks).`;
}

/** The sections about methods, one method at a time: its memory, its graph and its modules. */
function methodSections(program, charts) {
  const places = [element("div"), element("div"), element("div")];
  const choosers = places.map(() => methodChooser(program, show)).filter(Boolean);
  const views = {
    charts: [],
    redraw() {
      this.charts.forEach((chart) => chart.redraw());
    },
    dispose() {
      this.charts.forEach((chart) => chart.dispose());
    },
  };
  charts.push(views);
  fill(0);
  return ["Memory", "Graph", "Modules"].map((title, place) => section(title, choosers[place], places[place]));

  function fill(index) {
    const method = program.methods[index];
    const links = { tensor: null, instruction: null };
    views.charts = [];
    places[0].replaceChildren(methodView(program, method, views.charts, links));
    places[1].replaceChildren(graphView(method, views.charts, links));
    places[2].replaceChildren(modulesView(program, method, views.charts, links));
  }

  function show(index) {
    views.dispose();
    choosers.forEach((chooser) => (chooser.querySelector("select").selectedIndex = index));
    fill(index);
    views.redraw();
  }
}

/** Null for a program with one method. */
function methodChooser(program, onchange) {
  const names = program.methods.map((method) => method.name);
  return names.length > 1 ? element("div", { class: "controls" }, choice("Method", names, onchange)) : null;
}

function graphView(method, charts, links) {
  if (!method.instructions.operator.length) return element("p", {}, "This method has no instructions.");
  const view = new GraphView(method, links);
  charts.push(view);
  return view.element;
}

function modulesView(program, method, charts, links) {
  if (!method.modules) {
    const why = program.sources ?? "the file and the build's notes have no names of modules";
    return element("p", {}, `Modules of the model are not known: ${why}.`);
  }
  const view = new ModulesView(method, links);
  charts.push(view);
  return view.view;
}

function methodView(program, method, charts, links) {
  const parts = [];
  if (program.sources) parts.push(element("p", {}, `Lines of the model's code are not known: ${program.sources}.`));
  if (method.unknown) parts.push(element("p", { class: "not-run" }, `Lifetimes are not known: ${method.unknown}`));
  if (method.buffers.length) parts.push(buffersView(method, charts, links));
  else if (!method.unknown) parts.push(element("p", {}, "This method has no planned memory."));
  if (method.timeline) {
    const timeline = timelineView(method);
    charts.push(timeline);
    parts.push(element("h3", {}, "Devices"), timeline.view);
  }
  parts.push(element("h3", {}, `Method ${method.name}, ${grouped(method.instants - 2)} instructions`));
  parts.push(
    ...method.tables.map((table) =>
      element(
        "details",
        {},
        element("summary", {}, `${table.title} (${grouped(table.rows.length)})`),
        plainTable(table),
      ),
    ),
  );
  return element("div", {}, ...parts);
}

/** The planned buffers of a method, one at a time; the first that holds more than state. */
function buffersView(method, charts, links) {
  const place = element("div");
  const holder = {
    map: null,
    redraw() {
      this.map.redraw();
    },
    dispose() {
      this.map.dispose();
    },
  };
  const names = method.buffers.map(({ info }) => {
    const bank = info.bank === null ? "" : `${info.bank}, `;
    return `${info.index}, ${bank}${info.device}, ${size(info.size)}`;
  });
  const chooser = names.length > 1 ? choice("Buffer", names, show) : null;
  const first = Math.max(
    method.buffers.findIndex((buffer) => buffer.peak),
    0,
  );
  if (chooser) chooser.querySelector("select").selectedIndex = first;
  let shown = first;
  charts.push(holder);
  fill(first);
  links.tensor = ({ buffer, row }, withFocus = true) => {
    if (buffer !== shown) {
      chooser.querySelector("select").selectedIndex = buffer;
      show(buffer);
    }
    if (withFocus) holder.map.present(row);
    else holder.map.go(row);
  };
  return element("div", {}, chooser ? element("div", { class: "controls" }, chooser) : null, place);

  function fill(index) {
    const buffer = method.buffers[index];
    shown = index;
    holder.map = new MemoryMap(method, buffer);
    place.replaceChildren(
      bufferFacts(buffer),
      holder.map.view,
      ...bufferTables(method, buffer, (row) => holder.map.present(row), (position) => links.instruction?.(position)),
    );
  }

  function show(index) {
    holder.dispose();
    fill(index);
    holder.redraw();
  }
}

function bufferFacts(buffer) {
  const bound =
    buffer.info.lower_bound === null
      ? "not known"
      : buffer.info.lower_bound === buffer.info.size
        ? "the size: no plan of these tensors takes less"
        : exactSize(buffer.info.lower_bound);
  const pairs = [
    ["buffer", `${buffer.info.index} on ${buffer.info.device}`],
    ["size", exactSize(buffer.info.size)],
    ["lower bound", bound],
  ];
  if (comparedBuffers(buffer).some(({ info }) => info.bank !== null)) {
    const { bank, size: used, capacity } = buffer.info;
    const share = bank === null ? "none" : `${bank}: ${percent(used, capacity)} of ${exactSize(capacity)} used by this method`;
    pairs.splice(1, 0, ["bank", share]);
  }
  const { greedy } = buffer.info;
  if (comparedBuffers(buffer).some(({ info }) => info.greedy !== null))
    pairs.push(["ExecuTorch's planner, for these tensors", greedy === null ? "not known" : exactSize(greedy)]);
  return facts(pairs);
}

function bufferTables(method, buffer, onselect, oninstruction) {
  const peak = buffer.peak ? [element("h3", {}, "What makes the peak"), peakTable(method, buffer, onselect, oninstruction)] : [];
  const all = element(
    "details",
    {},
    element("summary", {}, `All tensors (${grouped(buffer.tensors.value.length)})`),
    tensorTable(method, buffer, onselect, oninstruction),
  );
  return [...peak, all];
}
