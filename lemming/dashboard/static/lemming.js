"use strict";
// The one global of the page: parts register themselves here, and all facts come through `Lemming.load`.
// Nothing makes HTML of text: preact sets texts as texts, whatever agents wrote.
(function () {
  const html = htm.bind(preact.h);

  // Signs that turn a text round, or are not seen, stand as their numbers wherever a text of anybody is shown:
  // what is read is what is there. Joiners and selectors belong to the letter or picture before them.
  const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}]|(?<![^\u0000-\u007f])[\u200c\u200d\ufe00-\ufe0f]/gu;
  const number = (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  const visible = (text) => text.replace(UNSEEN, number);

  preact.options.vnode = (node) => {
    if (typeof node.props === "string") node.props = visible(node.props);
    else for (const name of ["title", "aria-label"]) if (node.props && typeof node.props[name] === "string") node.props[name] = visible(node.props[name]);
  };

  const Lemming = (window.Lemming = {
    html,
    hooks: preactHooks,
    parts: new Map(),
    page: { is_read_only: true, person: "" },

    // name: what stands in the address. title; key: the letter after "g". render: a component that is given
    // {value, params, header, page}. view: the view that it shows (default: its name). hidden: not in the menu;
    // `under` is then the part that is marked there. ask: a component that is shown above what went wrong.
    // keys: [key, what it does] of its own, for the list of keys.
    // looks: the part whose styles it has (default: its own).
    // isLocal: what it shows follows the address at once, whatever the server has sent.
    // params: what the view is asked for, made of what stands in the address (default: all of it).
    part(name, definition) {
      Lemming.parts.set(name, { name, view: name, params: (route) => route, ...definition });
    },

    // Gives a view's value now; throws an Error with `hint` where there is none.
    load(view, params) {
      return Lemming.source.load(view, params || {});
    },

    // Changes something as the person who clicks; throws an Error with `hint` where that is refused.
    act(name, said) {
      return Lemming.source.act(name, said);
    },

    go(part, params) {
      location.hash = Lemming.link(part, params);
    },

    link(part, params) {
      const query = new URLSearchParams(kept(params)).toString();
      return "#/" + part + (query ? "?" + query : "");
    },

    route() {
      const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
      const part = Lemming.parts.has(path) ? path : Lemming.parts.has("agents") ? "agents" : Lemming.parts.keys().next().value;
      return { part, params: Object.fromEntries(new URLSearchParams(query || "")) };
    },

    now: () => Date.now(),

    // What is being typed, by the name of its place: it outlasts a look at another part.
    drafts: new Map(),

    // The keys of the part that is shown: by key what it does. They come before the page's own.
    keys: new Map(),
  });

  addEventListener("beforeunload", (event) => Lemming.drafts.size && event.preventDefault());

  function kept(params) {
    return Object.fromEntries(Object.entries(params || {}).filter(([, value]) => value !== "" && value != null));
  }

  async function answered(response) {
    const text = await response.text();
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      throw failure({ message: text.trim() || response.statusText });
    }
    if (!response.ok) throw failure(value);
    return value;
  }

  function failure(said) {
    const error = new Error(String(said.message));
    error.hint = said.hint ? String(said.hint) : "";
    return error;
  }

  const REST_MS = 30000;

  // The server of `lemming dash`. A report on disk puts another source in this one's place: it has `load` and
  // `watch`, and no `act`.
  Lemming.source = {
    load: async (view, params) => answered(await fetch("api/" + view + "?" + new URLSearchParams(kept(params)))),

    act: async (name, said) =>
      answered(
        await fetch("do/" + name, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(said),
        }),
      ),

    // Calls `tell` with the state at once and whenever it changes, and `lost` with whether nobody answers.
    // Returns a function that ends it. A browser keeps six connections to a server: a tab that nobody sees gives
    // its own back, and looks again now and then.
    watch(view, params, tell, lost) {
      let stream, timer, isOver = false;
      const rest = () => {
        stream.close();
        clearTimeout(timer);
        timer = setTimeout(open, REST_MS);
      };
      const open = () => {
        clearTimeout(timer);
        if (stream) stream.close();
        stream = new EventSource("live?" + new URLSearchParams(kept({ view, ...params })));
        stream.onmessage = (event) => {
          lost(false);
          tell(JSON.parse(event.data));
          if (document.hidden) rest();
        };
        stream.onerror = () => {
          lost(true);
          if (stream.readyState === EventSource.CLOSED && !isOver) timer = setTimeout(open, 1500);
        };
      };
      const turn = () => (document.hidden ? rest() : open());
      document.addEventListener("visibilitychange", turn);
      open();
      return () => {
        isOver = true;
        document.removeEventListener("visibilitychange", turn);
        clearTimeout(timer);
        stream.close();
      };
    },
  };
})();
