"use strict";
// A report on disk: what the page shows is in files beside it, which are loaded as scripts when they are needed.
// It stands in the place of the server: the same values, chosen from as the server's views choose.
(function () {
  const files = new Map(); // by name: what they hold, or a promise of it
  const arrived = new Map(); // by name: what to call once it is there
  const places = new Map(); // by key: the name of the file
  let index = null;

  // Each file of data calls this with its name and with one text of JSON.
  Lemming.put = function (name, text) {
    const held = JSON.parse(text);
    if (name === "index") return begin(held);
    const tell = arrived.get(name);
    if (tell) tell(new Map(Object.entries(held)));
  };

  function begin(held) {
    index = held;
    index.errors = new Map(Object.entries(held.errors));
    for (const [name, keys] of Object.entries(held.files)) for (const key of keys) places.set(key, name);
    Lemming.page = held.page;
  }

  function file(name) {
    if (!files.has(name))
      files.set(name, new Promise((tell, fail) => {
        const script = document.createElement("script");
        arrived.set(name, tell);
        script.onerror = () => (files.delete(name), fail(failure(`data/${name}.js is not there`, "the files of a report belong together")));
        script.src = `data/${name}.js`;
        document.head.append(script);
      }));
    return files.get(name);
  }

  function failure(message, hint) {
    const error = new Error(message);
    error.hint = hint || "";
    return error;
  }

  const keyOf = (name, params) => [name, ...Object.keys(params).sort().map((each) => `${each}=${params[each]}`)].join("\n");
  const isThere = (name, params) => places.has(keyOf(name, params));

  // What went wrong as the report was made goes wrong here as well.
  function believe(key) {
    const error = index.errors.get(key);
    if (error) throw Object.assign(failure(error.message, error.hint), { where: error.where });
  }

  async function found(name, params) {
    const key = keyOf(name, params || {});
    believe(key);
    if (!places.has(key)) throw missing(name, params || {});
    return (await file(places.get(key))).get(key);
  }

  function missing(name, params) {
    const named = { tick: "tick", past: "tick", map: "the neighbours of", file: "the file", why: "where this came from:" };
    const what = params.number || params.new || params.file || params.target || params.identity || params.name || params.agent || "";
    return failure(`Not in this report: ${named[name] || name} ${what}`);
  }

  const has = (text, wanted) => String(text).toLowerCase().includes(wanted.toLowerCase());

  // --- the views that choose from what is there ---

  const views = {
    header: () => index.header,

    async agents({ find = "", offset = 0, limit = 50 }) {
      const all = await found("agents");
      const rows = all.rows.filter((row) => has(row.name, find) || has(row.title || "", find));
      const first = Math.max(0, Math.min(Number(offset), rows.length - 1));
      return { ...all, total: rows.length, offset: first, rows: rows.slice(first, first + Number(limit)) };
    },

    async feed({ agent, kind, find, before, thread, limit = 50 }) {
      if (thread) return ofThread(thread);
      believe("feed");
      const entries = [];
      let isAfter = !before;
      for (let place = 0; place < index.feeds; place++)
        for (const entry of await found(`feed ${place}`)) {
          if (entries.length >= limit) return { entries, before: entries[entries.length - 1].identity };
          if (isAfter && (!agent || entry.agent === agent) && (!kind || entry.kind === kind) && (!find || says(entry, find))) entries.push(entry);
          isAfter = isAfter || entry.identity === before;
        }
      return { entries, before: null };
    },

    async ticks({ before, count = 60 }) {
      const all = await found("ticks");
      const ticks = all.ticks.filter((tick) => before == null || tick.tick < Number(before));
      return { ...all, ticks: ticks.slice(-count), older: ticks.length > count };
    },

    async tick({ around, ...asked }) {
      const told = await tickOf(asked), count = Number(around), before = told.tick - (told.tick % count) + count + 1;
      return { ...told, strip: (await found("ticks")).ticks.filter((each) => each.tick < before).slice(-count - 1) };
    },

    async past({ old, new: number = index.newest, agent }) {
      if (old != null) throw failure("A report compares no two ticks", "`lemming diff` and `lemming dash` do");
      if (number == null) throw failure("no tick has run yet");
      const told = await found("past", { new: number });
      return agent ? { ...told, files: told.files.filter((each) => each.path.startsWith(`agents/${agent}/`)) } : told;
    },

    async findings({ kind, agent }) {
      const all = await found("findings");
      return { ...all, rows: all.rows.filter((row) => (!kind || row.kind === kind) && (!agent || row.agents.includes(agent))) };
    },

    async agent({ name, file: path }) {
      return path ? { file: await found("file", { name, file: path }) } : found("agent", { name, prompt: 1 });
    },

    // Trees are there as far back as they were gathered.
    why: ({ target }) => (target ? found("why", { target }) : { target: null, sources: [], is_found: false }),
    money: ({ by }) => found("money", by === "day" ? { by } : {}),
    map: ({ agent }) => found("map", agent ? { agent } : {}),
    waiting: () => found("waiting"),
    screen: ({ screen = "status", ...params }) => found("screen", { screen, ...params }),
  };

  async function tickOf({ number = index.newest, agent, first }) {
    if (number == null) throw failure("no tick has run yet");
    const isInside = index.first <= number && number <= index.newest;
    if (!isThere("tick", { number }) && isInside && !index.errors.has(keyOf("tick", { number }))) throw failure(`Nobody took a turn in tick ${number}`);
    const told = await found("tick", first ? { number, first } : { number });
    if (!agent) return told;
    if (isThere("turn", { number, agent })) return { ...told, turn: await found("turn", { number, agent }) };
    const why = told.skipped[agent] || told.broken[agent] || (told.not_due.includes(agent) ? "not due" : "it was not there");
    const isLeftOut = told.order.includes(agent);
    return { ...told, no_turn: isLeftOut ? `the turn of ${agent} is not in this report` : `${agent} took no turn in tick ${told.tick}: ${why}` };
  }

  function says(entry, find) {
    return has([entry.agent, entry.id, entry.text, JSON.stringify(entry.payload), entry.tags.join(" ")].join("\n"), find);
  }

  async function ofThread(identity) {
    const { threads, of } = await found("threads");
    if (Object.hasOwn(of, identity)) return threads[of[identity]];
    throw missing("the request of", { identity });
  }

  async function load(view, params) {
    if (!index) throw failure("data/index.js is not there", "the files of a report belong together");
    const asked = Object.entries(params || {}).filter(([, value]) => value !== "" && value != null);
    return views[view](Object.fromEntries(asked));
  }

  Lemming.source = {
    load,

    async act() {
      throw failure("A report only shows", "`lemming dash` and the commands change things");
    },

    watch(view, params, tell) {
      let isOver = false;
      const told = (more) => isOver || tell({ page: Lemming.page, header: index ? index.header : {}, ...more });
      load(view, params).then((value) => told({ view: value }), (error) => told({ error: { message: error.message, hint: error.hint, where: error.where } }));
      return () => (isOver = true);
    },
  };
})();
