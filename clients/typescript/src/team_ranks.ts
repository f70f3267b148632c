// Ranks of teams in reports of results.

/** Rank of each team by its number; 1 is the best, equal ranks are a draw. */
export type TeamRanks = Readonly<Record<number, number>>;

/** Ranks as the contract has them. */
export function toTeamRanks(ranks: TeamRanks): { team: number; rank: number }[] {
  return Object.entries(ranks).map(([team, rank]) => ({ team: Number(team), rank }));
}
