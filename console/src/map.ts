// World map of waiting players and of advertisements on the coarse grid.

import { h, svg } from "./dom.js";
import { count } from "./format.js";
import type { MapCell, WorldMap } from "./gen/fireteam/v1/operator_pb.js";

declare const LAND_PATH: string;

/** Radius of a circle whose area stands for a number, in degrees. */
const radius = (value: number, largest: number): number => (value === 0 ? 0 : 0.6 + 5 * Math.sqrt(value / largest));

const place = (cell: MapCell): string =>
  `${Math.abs(cell.latitude)}° ${cell.latitude < 0 ? "S" : "N"}, ${Math.abs(cell.longitude)}° ${cell.longitude < 0 ? "W" : "E"}`;

/** The map: filled circles are waiting players, rings are sessions and game servers. */
export function worldMap(map: WorldMap | undefined): HTMLElement {
  const cells = map?.cells ?? [];
  const adverts = (cell: MapCell): number => cell.sessions + cell.gameServers;
  const players = cells.reduce((sum, cell) => sum + cell.waitingPlayers, 0);
  const advertised = cells.reduce((sum, cell) => sum + adverts(cell), 0);
  const [mostPlayers, mostAdverts] = [Math.max(1, ...cells.map((it) => it.waitingPlayers)), Math.max(1, ...cells.map(adverts))];
  const label = `World map: ${count(players)} waiting players and ${count(advertised)} sessions and game servers in ${count(cells.length)} cells`;
  // Without the far south, where no one plays.
  const drawing = svg("svg", { viewBox: "0 4 360 142", role: "img", "aria-label": label, class: "map" }, svg("path", { d: LAND_PATH, class: "land" }));
  for (const cell of cells) {
    const [cx, cy] = [cell.longitude + 180, 90 - cell.latitude];
    const title = `${place(cell)}: ${count(cell.waitingPlayers)} waiting players, ${count(cell.sessions)} sessions, ${count(cell.gameServers)} game servers`;
    drawing.append(
      svg(
        "g",
        {},
        svg("title", {}, title),
        svg("circle", { cx, cy, r: radius(adverts(cell), mostAdverts).toFixed(2), class: "adverts" }),
        svg("circle", { cx, cy, r: radius(cell.waitingPlayers, mostPlayers).toFixed(2), class: "players" }),
      ),
    );
  }
  const unknown = [
    `${count(map?.waitingPlayersWithoutPlace ?? 0n)} waiting players`,
    `${count(map?.advertisementsWithoutPlace ?? 0n)} sessions and game servers`,
  ];
  return h(
    "div",
    {},
    drawing,
    h(
      "ul",
      { class: "legend" },
      h("li", {}, h("span", { class: "key players", "aria-hidden": "true" }), "waiting players ", h("b", {}, count(players))),
      h("li", {}, h("span", { class: "key adverts", "aria-hidden": "true" }), "sessions and game servers ", h("b", {}, count(advertised))),
      h("li", {}, `place unknown: ${unknown.join(", ")}`),
    ),
  );
}
