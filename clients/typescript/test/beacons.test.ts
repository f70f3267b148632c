// Round trips to beacons without UDP: the client's own measurements, over gRPC as in Node and over gRPC-Web as in a browser.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect as connectNode } from "../src/node.js";
import { connect as connectWeb } from "../src/web.js";
import { ServerProcess, SKIPPED } from "./server_process.js";

/** Sets whose rules count a client's word for its round trips, and only receipts. */
const [CLAIMED, PROVEN] = [21, 22];
const BEACON = ["--beacon-fleet-key-file", "fleet-key", "--beacon-listen", "127.0.0.1:0", "--beacon-id", "7", "--beacon-region", "eu",
  "--beacon-place", "50.1/8.7", "--beacon-announce-address", "127.0.0.1", "--observe-tcp=false"];

const ruleset = (setId: number, latency: string) => `<Ruleset Name="Beacons ${setId}" SetId="${setId}">
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>${latency}
</Ruleset>`;

for (const [name, connect] of [["gRPC", connectNode], ["gRPC-Web", connectWeb]] as const) {
  test(`own round trips to beacons count where rules trust them, over ${name}`, { skip: SKIPPED, timeout: 120_000 }, async () => {
    const rulesets = await mkdtemp(join(tmpdir(), "fireteam-rulesets-"));
    await writeFile(join(rulesets, "claimed.xml"), ruleset(CLAIMED, ""));
    await writeFile(join(rulesets, "proven.xml"), ruleset(PROVEN, '<Latency Trust="proven"/>'));
    await using server = await ServerProcess.start("--rulesets", rulesets, ...BEACON);
    const client = connect(server.uri);
    try {
      // The beacon announces itself soon after the start.
      while ((await client.latency.getBeacons({})).beacons.length === 0) {}
      assert.deepEqual((await client.reportTrips()).regions, [], "nothing is observed over loopback");
      const report = await client.reportTrips([{ beaconId: 7, statistics: { sent: 4, answered: 4, floorMs: 30 } }]);
      assert.deepEqual(report.regions.map(({ region, roundTripMs, claimed }) => [region, roundTripMs, claimed]), [["eu", 30, true]]);
      assert.ok(report.latencyToken.length > 0 && report.goodForMs > 60_000);

      const party = (userId: string) => ({ players: [{ userId }], latencyToken: report.latencyToken });
      const known: boolean[] = [];
      for (const matchmakingSetId of [CLAIMED, PROVEN]) {
        const sessionComposition = { ...party("host"), partySizeComposition: [1], maxAllowedJoinReservationCount: 2 };
        await client.advertise({ matchmakingSetId, sessionComposition });
        const { candidates } = await client.newSearch(matchmakingSetId, party("ann")).search();
        known.push(candidates[0]?.roundTripMs !== undefined);
      }
      assert.deepEqual(known, [true, false]);
    } finally {
      client.close();
      await rm(rulesets, { recursive: true, force: true });
    }
  });
}
