// The page: one object of what is known, drawn as a whole whenever it changes. Names are text, never markup.
import { render } from "/page/preact.js";
import { Name, here, html, known } from "/page/common.js";
import * as acts from "/page/acts.js";
import * as cluster from "/page/cluster.js";
import * as job from "/page/job.js";
import * as live from "/page/live.js";
import * as nodes from "/page/nodes.js";
import * as queue from "/page/queue.js";
import * as reports from "/page/reports.js";
import * as timeline from "/page/timeline.js";
import * as usage from "/page/usage.js";
import * as whatif from "/page/whatif.js";

// What is shown comes by one stream of changes. Not by `/events`: a busy queue tells more than a screen shows. A browser
// holds six connections to a scheduler for all its tabs, so one that is not seen has none.
const AGAIN_MS = 3000;
const VIEWS = { "#/": ["Cluster", cluster], "#/queue": ["Queue", queue], "#/nodes": ["Nodes", nodes], "#/timeline": ["Timeline", timeline],
  "#/usage": ["Usage", usage], "#/reports": ["Reports", reports], "#/whatif": ["What if", whatif] };
const OF_ONE = { "#/job/": job, "#/node/": nodes };
const viewed = () => Object.entries(OF_ONE).find(([start]) => here().path.startsWith(start))?.[1] || VIEWS[here().path]?.[1] || cluster;
let asking = false, again = null, retry = 0;

async function load(isAct = true) {  // by an act, all of it is asked for anew
  if (document.hidden || known.signedOut) return;
  if (asking) { again = again || isAct; return; }
  asking = true;
  again = null;
  try {
    const view = viewed();
    await view.load(await live.screen(view.wanted()), isAct);
    Object.assign(known, { at: Date.now(), error: "" });
  } catch (error) { if (!document.hidden) failed(error); }
  asking = false;
  draw();
  if (again !== null) load(again);
}

function failed(error) {
  known.error = error.message;
  retry ||= setTimeout(() => { retry = 0; load(); }, AGAIN_MS);
}

live.connect(error => {
  if (!error) { load(false); return; }
  failed(error);
  draw();
});

function Page() {
  if (known.signedOut || here().path === "#/signed-out") return html`<main><h1>You are not signed in.</h1>
    <p class="lead">A link works once, for five minutes. A new one: <code>colane ui</code></p></main>`;
  const { View } = viewed(), time = new Date(known.at).toLocaleTimeString();
  return html`<header><b>Colane</b><nav aria-label="Pages">${Object.entries(VIEWS).map(([to, [name]]) =>
      html`<a key=${to} href=${to} aria-current=${VIEWS[to][1] === viewed() ? "page" : null}>${name}</a>`)}</nav>
    <span class="live">${known.user ? html`<${Name} of=${known.user} most=${24} />${known.isOperator ? ", operator" : ""} · ` : ""}${known.at ? `as of ${time}` : ""}</span></header>
    ${known.error ? html`<div class="banner" role="status">▲ The scheduler is not heard: ${known.error}.${
      known.at ? ` Figures are of ${time}.` : ""}</div>` : ""}
    <main><${View} key=${here().path} redraw=${draw} /></main><${acts.Question} />`;
}

let frame = 0;
function draw() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    render(html`<${Page} />`, document.body);
    acts.show();
    if (viewed() === queue && !known.error && queue.isMissing()) load();
  });
}

let path = here().path;
addEventListener("hashchange", () => {
  if (path !== here().path) scrollTo(0, 0);
  path = here().path;
  draw();
  load();
});
addEventListener("scroll", () => { if (viewed() === queue) draw(); }, { passive: true });
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => { if (document.hidden) live.close(); else load(); });
acts.connect({ draw, changed({ jobs, refused }) {
  for (const { id } of jobs) if (!refused.some(one => one.id === id)) for (const { chosen } of [queue, reports]) chosen.delete(id);
  load();
}  });
draw();
load();
