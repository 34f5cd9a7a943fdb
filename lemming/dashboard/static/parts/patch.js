"use strict";
// The patch that a call would apply: files as a tree, changes by file, comments on lines, and its edit.
(function () {
  const { html } = Lemming;
  const { useState, useEffect } = Lemming.hooks;
  const { Failure, Diff, plain, changes, useAction, useDraft } = Lemming.ui;

  const STATUSES = { A: "new", D: "removed", T: "other type" };
  const KINDS = { "+": "added", "-": "gone", "\\": "place" };
  const FOLDED_LINES = 300;

  // Comments by place, `path:line`, as the lines of a reason.
  const commentLines = (comments) => Object.entries(comments || {}).filter(([, text]) => text.trim()).map(([place, text]) => `${place}: ${text.trim().replace(/\s*\n\s*/g, " ")}`);

  const Size = ({ file }) => html`<span class="size">${file.is_binary ? "binary" : html`<span class="plus">+${file.insertions}</span> <span class="minus">−${file.deletions}</span>`}</span>`;

  function Patch({ item, patch, canComment, redraw }) {
    const [draft, setDraft] = useDraft("answer " + item.identity, {});
    const [folds, setFolds] = useState({});
    if (!patch) return html`<p class="loading">reading the patch…</p>`;
    const { files, flags } = patch;
    const isOpen = (file) => (file.path in folds ? folds[file.path] : count(file) <= FOLDED_LINES);
    const fold = (path, next) => setFolds({ ...folds, [path]: next });
    const comment = (place, text) => {
      const comments = { ...draft.comments, [place]: text };
      if (text === undefined) delete comments[place];
      const { comments: _, ...rest } = draft;
      setDraft(Object.keys(comments).length ? { ...draft, comments } : rest);
      redraw();
    };
    const show = (file) => {
      fold(file.path, true);
      const section = document.getElementById("file " + file.path);
      if (section) section.scrollIntoView({ block: "start" });
    };
    return html`<section class="patch" aria-label="the patch">
      ${patch.problem ? html`<div class="failure" role="alert"><strong>This cannot be approved.</strong> ${plain(patch.problem)}</div>` : null}
      ${Object.keys(flags).length ? html`<div class="note closely">Look closely:<ul>${Object.entries(flags).map(([path, reason]) => html`<li><code>${plain(path)}</code>: ${plain(reason)}</li>`)}</ul></div>` : null}
      ${patch.summary ? html`<p class="summary-line" dir="auto">${plain(patch.summary)}</p>` : null}
      <p class="note">${files.length} ${files.length === 1 ? "file" : "files"} <span class="plus">+${patch.insertions}</span> <span class="minus">−${patch.deletions}</span>${Object.entries(patch.facts).map(([label, value]) => html` · ${label} <code title=${value}>${plain(shortly(value))}</code>`)}</p>
      <${Tree} files=${files} flags=${flags} show=${show} />
      ${files.map((file) => html`<${FileChanges} key=${file.path} file=${file} flag=${flags[file.path]} isOpen=${isOpen(file)} fold=${(next) => fold(file.path, next)} comments=${draft.comments || {}} comment=${canComment ? comment : null} />`)}
    </section>`;
  }

  const shortly = (value) => (value.length > 40 ? value.slice(0, 28) + "…" : value);
  const count = (file) => file.hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);

  function Tree({ files, flags, show }) {
    const folders = new Map();
    for (const file of files) {
      const end = file.path.lastIndexOf("/") + 1, folder = file.path.slice(0, end);
      if (!folders.has(folder)) folders.set(folder, []);
      folders.get(folder).push([file.path.slice(end), file]);
    }
    return html`<nav class="file-tree" aria-label="changed files"><ul>${[...folders].map(([folder, inside]) => html`<li>${folder ? html`<code class="folder">${plain(folder)}</code>` : null}
      <ul class=${folder ? "inside" : ""}>${inside.map(([name, file]) => html`<li><button type="button" class="plain" onClick=${() => show(file)}><code>${plain(name)}</code></button> <${Size} file=${file} />${file.status in STATUSES ? html` <small>${STATUSES[file.status]}</small>` : null}${flags[file.path] ? html` <span class="flagged" title=${flags[file.path]}>look closely</span>` : null}</li>`)}</ul></li>`)}</ul></nav>`;
  }

  function FileChanges({ file, flag, isOpen, fold, comments, comment }) {
    return html`<details class="file-changes" id=${"file " + file.path} open=${isOpen} onToggle=${(event) => event.target.open !== isOpen && fold(event.target.open)}>
      <summary><code>${plain(file.path)}</code> <${Size} file=${file} />${file.status in STATUSES ? html` <small>${STATUSES[file.status]}</small>` : null}${flag ? html` <span class="flagged">${plain(flag)}</span>` : null}</summary>
      ${!isOpen ? null : file.left_out ? html`<p class="note">${file.left_out} lines, too many for the page: <code>lemming waiting ID</code> shows them</p>`
        : file.is_binary ? html`<p class="note">a binary file</p>`
        : !file.hunks.length ? html`<p class="note">no lines changed</p>`
        : html`<div class="lines" role="table" aria-label=${"changes of " + file.path} tabindex="0">${file.hunks.map((hunk) => html`<${Hunk} path=${file.path} hunk=${hunk} comments=${comments} comment=${comment} />`)}</div>`}</details>`;
  }

  // Lines with their numbers before and after; a line is commented on by its number.
  function Hunk({ path, hunk, comments, comment }) {
    const start = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(hunk.header) || ["", "1", "1"];
    let before = Number(start[1]), after = Number(start[2]);
    return html`<div class="hunk" role="row"><span role="cell">${plain(hunk.header)}</span></div>${hunk.lines.map(([mark, text]) => {
      const isGone = mark === "-", numbers = mark === "\\" ? ["", ""] : [mark === "+" ? "" : before++, isGone ? "" : after++];
      const place = isGone ? `${path}:${numbers[0]} (removed)` : `${path}:${numbers[1]}`;
      const isNumbered = comment && mark !== "\\", isCommented = place in comments;
      return html`<div class=${"line-of-file " + (KINDS[mark] || "")} role="row"><span class="number" role="cell">${numbers[0]}</span><span class="number" role="cell">${numbers[1]}</span>
        <span class="mark-of-line" role="cell">${isNumbered ? html`<button type="button" class="plain add-comment" aria-label=${"comment on " + place} onClick=${() => comment(place, isCommented ? undefined : "")}>${mark === " " ? " " : mark}</button>` : mark}</span><code role="cell">${plain(text) || " "}</code></div>
        ${isCommented ? html`<div class="comment" role="row"><span role="cell"><textarea rows="2" aria-label=${"your comment on " + place} placeholder="what should change here? It goes with a denial" value=${comments[place]} disabled=${!comment} ref=${focusFirst} onInput=${(event) => comment(place, event.target.value)}></textarea>
          <button type="button" class="plain" onClick=${() => comment(place, undefined)}>Remove</button></span></div>` : null}`;
    })}`;
  }

  const known = new WeakSet();

  // Once, as it appears: what is typed then is meant for it.
  function focusFirst(box) {
    if (!box || known.has(box)) return;
    known.add(box);
    if (!box.value || box.tagName === "SELECT") box.focus();
  }

  const WHOLE = ""; // in place of a path: the text of the patch

  // One file as it would be, or the patch as a text, as typed. What stands there replaces the worker's.
  function PatchEdit({ item, patch, draft, setDraft, act, off, back }) {
    const loading = useAction();
    const [asked, setAsked] = useState({});
    const paths = patch ? patch.files.filter((file) => file.status !== "D" && !file.is_binary).map((file) => file.path) : [];
    const [path, setPath] = useState(Object.keys(draft.contents || {})[0] || paths[0] || WHOLE);
    useEffect(() => {
      if (path in asked) return;
      loading.run(() => Lemming.act("patch-file", { id: item.identity, path })).then((told) => told && setAsked({ ...asked, [path]: told.text }));
    }, [path]);
    const contents = draft.contents || {}, edited = Object.keys(contents);
    const type = (text) => {
      const next = { ...contents, [path]: text };
      if (text === asked[path]) delete next[path];
      const { contents: _, ...rest } = draft;
      setDraft(Object.keys(next).length ? { ...draft, contents: next } : rest);
    };
    const send = (event) => {
      event.preventDefault();
      const said = WHOLE in contents ? { patch: contents[WHOLE] } : { contents };
      act("decide", { word: "approve", ...(edited.length && said) }, edited.length ? `approved, with ${edited.map((name) => name || "the patch").join(", ")} edited` : "approved");
    };
    const value = path in contents ? contents[path] : asked[path];
    const isMixed = WHOLE in contents && edited.length > 1;
    return html`<form class="form patch-edit" onSubmit=${send}>
      <label><span>Edit</span><select value=${path} ref=${focusFirst} onChange=${(event) => setPath(event.target.value)}>${paths.map((name) => html`<option value=${name}>${name}${name in contents ? " (edited)" : ""}</option>`)}<option value=${WHOLE}>the patch as a text${WHOLE in contents ? " (edited)" : ""}</option></select></label>
      ${value === undefined ? (loading.error ? null : html`<p class="loading">…</p>`) : html`<textarea class="code" spellcheck=${false} aria-label=${path || "the patch as a text"} rows=${Math.max(6, Math.min(24, value.split("\n").length + 1))} value=${value} onInput=${(event) => type(event.target.value)}></textarea>`}
      <${Failure} error=${loading.error} />
      ${path in contents && path in asked ? html`<${Diff} text=${changes(asked[path], contents[path])} />` : null}
      ${isMixed ? html`<p class="wrong">Edit either the patch or files: the other edits would be lost.</p>` : null}
      <p class="buttons"><button class="primary" disabled=${off || isMixed || value === undefined}>Approve${edited.length ? " as edited" : ""}</button>
        <button type="button" onClick=${() => {
          const { contents: _, ...rest } = draft;
          setDraft(rest);
          back();
        }}>Back</button></p></form>`;
  }

  Lemming.patch = { Patch, PatchEdit, commentLines };
})();
