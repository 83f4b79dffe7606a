// The cluster: what works, what needs a look, and who is on which device.
import { EVERY_MS, Name, byName, bytes, count, get, html, jobLink, known, lanesOf, loadNames, middle, percent, short } from "/page/common.js";
import { Cells } from "/page/cells.js";
import { Spark } from "/page/charts.js";
import { Look } from "/page/look.js";

const PAST_MS = 30000;
let seen = null, whole = 0, past = null, pastAt = 0, cells = null, uses = {};

export const wanted = () => "limit=0&overview=true&cells=true";

export async function load(now, isAct) {
  if (Date.now() - pastAt > PAST_MS) {
    past = await get("/samples/cluster?last_s=3600");
    pastAt = Date.now();
  }
  Object.assign(known, { overview: now.overview, user: now.user, isOperator: now.is_operator });
  cells = now.cells || null;
  uses = now.uses || {};
  if (now === seen || !isAct && Date.now() - whole < EVERY_MS) return;
  const nodes = now.cells ? [] : (await get("/nodes")).sort(byName);
  await loadNames(nodes.flatMap(node => node.jobs.map(job => job.id)), true);  // speeds change
  known.nodes = nodes;
  seen = now;
  whole = Date.now();
}

function Block({ one, ids, left, right }) {  // a gang is one block over its devices: `left` and `right` say where it goes on
  const job = known.names.get(one.id) || { name: "", user: "" }, speed = job.run?.speed_ratio ?? null, looks = ids.has(one.id), runs = one.run && !one.paused;
  const state = runs ? speed === null ? "" : `${speed.toFixed(2)} speed` : "‖ waits", many = one.slots.length;
  return html`<a href=${`#/job/${one.id}`} class=${`s${runs ? "" : " pz"}${job.user === known.user ? " own" : ""}${looks ? " wr" : ""}${right ? " j" : ""}${left ? " k" : ""}`}
    title=${`${one.id} ${job.name} ${job.user}${state ? `, ${state}` : ""}`}><b>${looks ? "▲ " : ""}${one.id}</b><span> <bdi>${right ? job.name : middle(job.name, 40)}</bdi></span>
    <i>${state}${state && many > 1 ? ` · ${many} devices` : ""}</i>${runs ? "" : html`<s>‖</s>`}</a>`;
}

const HIGH = 94, LEAST = 18;

function held(lane) {  // what jobs of a lane hold between steps, and the most that one needs within a step; null where that is not known
  return lane.every(one => one.memory) ? lane.reduce((sum, one) => sum + one.memory[0], 0) + Math.max(...lane.map(one => one.memory[1])) : null;
}

function rowsOf(node, gpu) {
  const rows = (lanesOf(node).get(gpu.index) || []).map(([lane, all]) => ({ lane, all, size: held(all) })), isKnown = rows.every(one => one.size !== null);
  return { rows, isKnown, high: size => Math.max(LEAST, size / gpu.memory_bytes * HIGH) };
}

function goesOn(row, here, there) {  // whether the only job of a row lies at the same height of the device beside
  const at = here.rows.indexOf(row), other = there?.rows[at];
  const same = (a, b) => a && b && (!here.isKnown && !there.isKnown || Math.round(here.high(a.size)) === Math.round(there.high(b.size)));
  return Boolean(other) && row.all.length === 1 && other.all.length === 1 && other.all[0].id === row.all[0].id && here.isKnown === there.isKnown
    && (here.isKnown || here.rows.length === there.rows.length) && here.rows.slice(0, at + 1).every((one, i) => same(one, there.rows[i]));
}

function Device({ gpu, kept, use, ids, here, before, after }) {
  const { rows, isKnown, high } = here;
  const left = gpu.memory_bytes - gpu.foreign_bytes - rows.reduce((sum, one) => sum + one.size, 0);
  const busy = use?.busy_ratio ?? null, size = use?.used_bytes ?? null;
  return html`<div><div class="dh"><b>${gpu.index}</b>${gpu.healthy ? html`<span>${busy === null ? "" : percent(busy)}${size === null ? "" : html`<span class="wd">${busy === null ? "" : " · "}${bytes(size)}</span>`}</span>` : html`<span class="ba">✕ broken</span>`}</div>
    <div class="ut"><i style=${{ width: `${(busy ?? 0) * 100}%` }}></i></div><div class=${gpu.healthy ? kept && !rows.length ? "box kp" : "box" : "box bad"}>
    ${rows.map(row => html`<div class="lane" key=${row.lane} title=${isKnown ? `lane ${row.lane}: ${bytes(row.size)}` : null} style=${{ flex: isKnown ? `0 1 ${high(row.size)}px` : "1" }}>${row.all.map(one =>
      html`<${Block} key=${one.id} one=${one} ids=${ids} left=${goesOn(row, here, before)} right=${goesOn(row, here, after)} />`)}</div>`)}
    ${gpu.foreign_bytes && gpu.healthy ? html`<div class="xt" style=${{ flex: `0 1 ${high(gpu.foreign_bytes)}px` }}>not Colane's ${bytes(gpu.foreign_bytes)}</div>` : ""}
    ${gpu.healthy ? !rows.length ? html`<span class="fr">${kept ? kept.job ? html`kept for <a href=${`#/job/${kept.job}`}>${kept.job}</a>` : "kept" : "free"}</span>` : isKnown && left / gpu.memory_bytes > 0.16 ? html`<span class="fr">${bytes(left)} free</span>` : ""
      : html`<span class="fr">✕ broken</span>`}
  </div></div>`;
}

function Devices({ node, kept, ids }) {
  const all = node.gpus.map(gpu => rowsOf(node, gpu)), used = new Map((uses[node.name] || []).map(one => [one.index, one]));
  return html`<div class="devs">${node.gpus.map((gpu, at) => html`<${Device} key=${gpu.index} gpu=${gpu} kept=${kept.get(`${node.name}/${gpu.index}`)} use=${used.get(gpu.index)} ids=${ids}
    here=${all[at]} before=${all[at - 1]} after=${all[at + 1]} />`)}</div>`;
}

function Side({ node }) {  // cores, host memory, and jobs that are on no device
  const { cores, host_memory_bytes: host } = node.booked, others = node.jobs.filter(job => !job.slots.length || job.on_host);
  const meter = (name, used, of, say) => html`<div class="mt"><span>${name}</span><span class="bar thin"><i style=${{ width: `${of ? Math.min(1, used / of) * 100 : 0}%` }}></i></span><span>${say}</span></div>`;
  return html`<div class="side">${meter("Cores", cores, node.cores.length, `${cores} / ${node.cores.length}`)}${meter("Host", host, node.host_memory_bytes, `${short(host / 1e9)} / ${bytes(node.host_memory_bytes)}`)}
    ${others.slice(0, 3).map(job => html`<div class="cj" key=${job.id}>${jobLink(job.id)} <${Name} of=${known.names.get(job.id)?.name || ""} most=${16} />${job.on_host ? " ‖ on the host" : ""}</div>`)}${others.length > 3 ? html`<div>${others.length - 3} more</div>` : ""}</div>`;
}

function next({ waiting, why_waiting: why, kept }) {  // what happens next, as far as it is known
  if (!waiting) return "No job waits.";
  const first = kept.find(one => one.job);
  return first ? html`${count(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}; ${jobLink(first.job, "job")} has devices kept for it.`
    : html`${count(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}${why[0] ? html`, ${waiting === why[0].count ? waiting === 1 ? "" : "all" : why[0].count} because of <a class="lk" href=${`#/queue?why=${why[0].why}`}>${why[0].why}</a>` : ""}.`;
}

export function View() {
  if (!known.overview) return html`<p class="lead">Asking the scheduler…</p>`;
  const { overview: o, nodes } = known, d = o.devices;
  if (!nodes.length && !cells) return html`<h1>No node is here yet.</h1><p class="lead">On a machine with GPUs: <code>colane agent</code></p>`;
  const also = [["suspended", "wait with a suspended job"], ["kept", "kept for a job"], ["closed", "on closed nodes"],
    ["broken", "broken"], ["lost", "on lost nodes"]].filter(([key]) => d[key]).map(([key, word]) => `${d[key]} ${word}`);
  const kept = new Map(o.kept.map(one => [one.gpu, one])), ids = new Set(o.look.map(one => one.job).filter(Boolean)), busy = past?.busy_ratio.findLast(one => one !== null) ?? null;
  const figures = [["Devices at work", `${d.working}`, `of ${d.total}, ${d.free} free`, "working"], ["Their use", busy === null ? "unknown" : Math.round(busy * 100), busy === null ? "" : "% of the time", "busy_ratio"],
    ["Running", `${o.running}`, "jobs", "running"], ["Waiting", `${o.waiting}`, "jobs", "waiting"],
    ["Shared", o.sharing_gain ? `${o.sharing_gain.toFixed(2)} ×` : `${o.sharing_devices}`, o.sharing_gain ? `of one job alone, on ${count(o.sharing_devices, "device")}` : "devices", "sharing"]];
  return html`<h1>${d.working} of ${count(d.total, "device")} ${d.working === 1 ? "works" : "work"}${also.length ? ", " + also.join(", ") : ""}.</h1>
    <p class="lead">${next(o)}</p>
    <div class="fig">${figures.map(([label, value, of, key]) => html`<div key=${label}>${past?.[key].some(one => one !== null) ? html`<${Spark} values=${past[key]} most=${key === "busy_ratio" ? 1 : null} label=${`${label}, last hour`} />` : ""}<span>${label}</span><em>${value} <small>${of}</small></em></div>`)}</div>
    <h2>Needs a look <small>${o.look.length || ""}</small></h2>
    <${Look} items=${o.look} withNode=${true} />
    <h2>Devices <small>${cells ? "" : "blue: yours · ▲ needs a look · height: memory · rows: lanes, at once · side by side: take turns · speed: 1.00 is alone · ‖ does not run now"}</small></h2>
    ${cells ? html`<${Cells} cells=${cells} look=${o.look} />` : ""}
    ${nodes.map(node => html`<section class="node" key=${node.name}><div><h3><a href=${`#/node/${encodeURIComponent(node.name)}`}><${Name} of=${node.name} /></a></h3>
      <p>${count(node.gpus.length, "device")}${node.gpus[0] ? ", " + node.gpus[0].type : ""}</p>
      ${node.lost ? html`<p class="wa">▲ lost</p>` : ""}${node.drain ? html`<p class="wa">▲ drains: <bdi>${node.drain.reason}</bdi></p>` : ""}</div>
      <${Devices} node=${node} kept=${kept} ids=${ids} /><${Side} node=${node} /></section>`)}
    <footer>As JSON: <a class="lk" href="/overview">overview</a>, <a class="lk" href="/nodes">nodes</a></footer>`;
}
