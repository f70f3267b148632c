// Script of the page: plays one player's game, and shows its steps.

import { connect } from "../../src/web.js";
import { play } from "../player.js";

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const form = element<HTMLFormElement>("form");
const leave = element<HTMLButtonElement>("leave");
const log = (line: string): void => void (element("log").textContent += `${line}\n`);

// The address of the page may name a player: ?server=http://127.0.0.1:50051&set=11&user=ann
for (const [name, value] of new URLSearchParams(location.search)) {
  const field = form.elements.namedItem(name);
  if (field instanceof HTMLInputElement) {
    field.value = value;
  }
}

async function playOne(): Promise<void> {
  const fields = new FormData(form);
  const [server, set, user] = ["server", "set", "user"].map((name) => String(fields.get(name)));
  const client = connect(server ?? "");
  const setId = Number(set);
  const aborted = new AbortController();
  leave.onclick = () => aborted.abort(new Error("left"));
  leave.disabled = false;
  try {
    const match = await play(client, setId, user ?? "", { log, joined: () => {} }, aborted.signal);
    const [rating] = await client.getRatings(setId, [user ?? ""]);
    log(`played in team ${match.team}, rating ${rating?.rating?.rating.toFixed(2)}`);
  } catch (error) {
    log(`failed: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    leave.disabled = true;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void playOne();
});
