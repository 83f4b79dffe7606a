// How the devices of a node are connected, as a tree: sockets, PCIe switches, devices; ways of jobs that cross sockets are drawn.
import { bytes, count, html, known, lanesOf, short } from "/page/common.js";

const WIDE = 92, WIDE_MIN = 40, HIGH = 64, BETWEEN = 40, IDS = 3, FAR = 2;
let wideOne = WIDE;  // of a device: on a phone all stand side by side
const rate = size => size ? ` ${short(size / 1e9)} GB/s` : "";
const word = ([kind, lanes]) => kind === "NV" ? `NV${lanes || ""}` : kind;

function laidOut({ gpus, topology }) {  // groups of a switch, or of those that hang on the socket itself, from left to right
  const of = gpus.map((gpu, at) => ({ gpu, at, socket: topology ? topology.sockets[at] : gpu.socket, hub: topology?.switches[at] ?? -1 }));
  of.sort((a, b) => a.socket - b.socket || a.hub - b.hub || a.gpu.index - b.gpu.index);
  const gaps = new Set(of.map(one => one.socket)).size - 1;
  wideOne = innerWidth > 760 ? WIDE : Math.max(WIDE_MIN, Math.min(WIDE, Math.floor((innerWidth - 36 - gaps * BETWEEN) / of.length)));
  let x = 0;
  const sockets = [];
  for (const one of of) {
    let socket = sockets.at(-1);
    if (!socket || socket.id !== one.socket) {
      if (socket) x += BETWEEN;
      socket = { id: one.socket, from: x, groups: [] };
      sockets.push(socket);
    }
    let group = socket.groups.at(-1);
    if (!group || group.hub !== one.hub) socket.groups.push(group = { hub: one.hub, from: x, all: [] });
    group.all.push({ ...one, x: x + wideOne / 2 });
    x += wideOne;
    group.to = socket.to = x;
  }
  return { sockets, wide: x };
}

const hubWide = group => Math.min(100, Math.max(WIDE_MIN, group.to - group.from - 4));
const between = (topology, a, b) => topology?.links[a.at]?.[b.at];
function nearest(topology, all) {  // what connects most of a group: the best pair says it
  const pairs = all.flatMap((a, i) => all.slice(i + 1).map(b => between(topology, a, b))).filter(Boolean);
  return pairs.sort((a, b) => b[2] - a[2])[0];
}

export function Tree({ node, plain = false }) {
  const { topology } = node, { sockets, wide } = laidOut(node), hubs = sockets.some(socket => socket.groups.some(group => group.hub >= 0));
  if (!wide) return html`<p class="lead">It has no devices.</p>`;
  const top = 44, hubY = top + 36, gpuY = hubs ? hubY + 20 + 28 : top + 40, high = gpuY + HIGH + (topology?.nvswitch ? 46 : 24);
  const places = sockets.flatMap(socket => socket.groups.flatMap(group => group.all.map(one => ({ ...one, socket: socket.id, group }))));
  const lanes = lanesOf(node), by = index => (lanes.get(index) || []).flatMap(([, jobs]) => jobs.map(job => job.id));
  const far = plain || topology?.nvswitch ? [] : node.jobs.filter(job => {
    const mine = places.filter(one => job.slots.some(slot => slot.gpu === one.gpu.index));
    return mine.some((a, i) => mine.slice(i + 1).some(b => between(topology, a, b)?.[0] === "SYS"));
  });
  const isFar = one => far.some(job => job.slots.some(slot => slot.gpu === one.gpu.index));
  const cores = socket => new Set(places.filter(one => one.socket === socket).flatMap(one => one.gpu.cores)).size;
  const cross = places.flatMap((a, i) => places.slice(i + 1).filter(b => b.socket !== a.socket).map(b => between(topology, a, b))).filter(Boolean)[0];
  const kept = new Set((known.overview?.kept || []).map(one => one.gpu));
  const way = on => on ? "rt" : "pcie";
  return html`<div class="tw tp"><svg width=${wide + 2} height=${high} viewBox=${`-1 0 ${wide + 2} ${high}`} role="img" aria-label=${`${count(sockets.length, "socket")} with ${
      sockets.map(socket => socket.groups.reduce((sum, group) => sum + group.all.length, 0)).join(" and ")} devices${topology?.nvswitch ? ", connected by NVSwitch" : ""}`}>
    ${sockets.slice(1).map((socket, at) => html`<path class=${far.length ? "rt" : "sys"} d=${`M${sockets[at].to} 20H${socket.from}`} />`)}
    ${sockets.flatMap(socket => socket.groups.flatMap(group => {
      const middle = (group.from + group.to) / 2, on = group.all.some(isFar);
      return [group.hub >= 0 ? html`<path class=${way(on)} d=${`M${middle} 40V${hubY}`} /><rect class="so" x=${middle - hubWide(group) / 2} y=${hubY} width=${hubWide(group)} height="20" /><text x=${middle} y=${hubY + 14} text-anchor="middle">${hubWide(group) < 90 ? "PCIe" : "PCIe switch"} ${group.hub}</text>` : "",
        ...group.all.map(one => html`<path class=${way(isFar(one))} d=${`M${one.x} ${group.hub >= 0 ? hubY + 20 : 40}V${gpuY}`} />`)];
    }))}
    ${sockets.map(socket => html`<rect class="so" x=${socket.from + 4} y="1" width=${socket.to - socket.from - 8} height="39" /><text class="tt" x=${socket.from + 14} y="18">Socket ${socket.id}</text>
      <text x=${socket.from + 14} y="33">${cores(socket.id) ? count(cores(socket.id), "core") : ""}</text>`)}
    ${cross && sockets.length > 1 && !topology.nvswitch ? html`<text x=${sockets[0].to + BETWEEN / 2} y="56" text-anchor="middle">${word(cross)}${rate(cross[2])}</text>` : ""}
    ${far.slice(0, FAR).map((job, at) => html`<text class="wt" x=${sockets[0].to + BETWEEN / 2} y=${70 + at * 14} text-anchor="middle">▲ ${job.id}${at === FAR - 1 && far.length > FAR ? ` +${far.length - FAR}` : ""}</text>`)}
    ${places.map(one => {
      const ids = plain ? [] : by(one.gpu.index), own = ids.some(id => known.user && known.names.get(id)?.user === known.user), hold = kept.has(`${node.name}/${one.gpu.index}`);
      return html`<rect class=${`gp${isFar(one) ? " wr" : own ? " me" : !ids.length ? " fe" : ""}${hold && !ids.length ? " kp" : ""}${one.gpu.healthy ? "" : " bd"}`} x=${one.x - wideOne / 2 + 5} y=${gpuY} width=${wideOne - 10} height=${HIGH} />
        <text class=${one.gpu.healthy ? "tt" : "tt on"} x=${one.x - wideOne / 2 + 13} y=${gpuY + 16}>${one.gpu.index}${one.gpu.healthy ? "" : " ✕ broken"}</text>
        ${ids.slice(0, IDS).map((id, at) => html`<a href=${`#/job/${id}`}><text class=${one.gpu.healthy ? "jb" : "jb on"} x=${one.x - wideOne / 2 + 13} y=${gpuY + 31 + at * 14}>${isFar(one) ? "▲ " : ""}${id}${at === IDS - 1 && ids.length > IDS ? ` +${ids.length - IDS}` : ""}</text></a>`)}
        ${!ids.length && !plain && one.gpu.healthy ? html`<text x=${one.x - wideOne / 2 + 13} y=${gpuY + 31}>${hold ? "kept" : "free"}</text>` : ""}
        ${plain ? html`<text x=${one.x - wideOne / 2 + 13} y=${gpuY + 31}>${bytes(one.gpu.memory_bytes)}</text>` : ""}`;
    })}
    ${topology?.nvswitch ? html`${places.map(one => html`<path class="pcie" d=${`M${one.x} ${gpuY + HIGH}v10`} />`)}<rect class="so" x="4" y=${gpuY + HIGH + 10} width=${wide - 8} height="24" />
      <text class="tt" x=${wide / 2} y=${gpuY + HIGH + 26} text-anchor="middle">NVSwitch: each with each ${nearest(topology, places) ? word(nearest(topology, places)) + rate(nearest(topology, places)[2]) : ""}</text>`
      : sockets.flatMap(socket => socket.groups.map(group => {
        const best = nearest(topology, group.all);
        return best ? html`<text x=${(group.from + group.to) / 2} y=${gpuY + HIGH + 16} text-anchor="middle">${word(best)}${rate(best[2])}</text>` : "";
      }))}
  </svg></div>`;
}
