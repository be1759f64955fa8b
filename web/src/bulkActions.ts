import type { Action } from "./actions";
import { answer, client, type Finding, type Table } from "./api/client";
import { Problem } from "./api/problem";
import { some } from "./labels/numbers";
import { tableName } from "./labels/tables";

/** A retry has the engine check source and target, so not all of them begin together. */
const AT_ONCE = 4;

export const canBeRetried = ({ state, code }: Table): boolean => state === "parked" && code !== "schema_change_waiting";
export const canBeReloaded = (table: Table): boolean => table.state === "live" || table.state === "paused" || canBeRetried(table);

/** What can be done to several tables together. `onDone`: called once it was accepted for all of them. */
export function bulkActions(subscription: string, chosen: readonly Table[], onDone: () => void): Action[] {
  const parked = chosen.filter(canBeRetried);
  const reloaded = chosen.filter(canBeReloaded);
  const path = ({ id }: Table) => ({ params: { path: { name: subscription, table_id: id } } });
  const retry = (table: Table) => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/retries", path(table)));
  const reload = (table: Table) => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/reloads", path(table)));
  return [
    ...(parked.length > 0 ? [bulkAction("Try again", "a retry was requested", CHECKED, parked, retry, onDone)] : []),
    ...(reloaded.length > 0 ? [bulkAction("Reload", "a reload was requested", READ, reloaded, reload, onDone)] : []),
  ];
}

const CHECKED = "The cause of each parking is checked first; where it remains, nothing happens to the table, and the cause is shown.";
const READ = "All their rows are read from the source again, which loads the source.";
const KEPT = "The old rows stay readable until the new ones replace them; the other tables are not affected.";

function bulkAction(
  verb: string,
  what: string,
  first: string,
  tables: readonly Table[],
  call: (table: Table) => Promise<unknown>,
  onDone: () => void,
): Action {
  const number = some(tables.length, "selected table");
  const run = forEachTable(tables, call);
  return {
    verb,
    title: verb === "Reload" ? `Reload ${number}?` : `Try ${number} again?`,
    does: [tables.map(tableName).join(", "), first, KEPT],
    name: number,
    run: async () => {
      await run();
      onDone();
    },
    done: `${number}: ${what}.`,
  };
}

/** Runs `call` for each table. Those that it refuses are named in one Problem; when run again, only these are tried. */
export function forEachTable(tables: readonly Table[], call: (table: Table) => Promise<unknown>): () => Promise<void> {
  const left = new Set(tables);
  return async () => {
    const refused: Finding[] = [];
    const waiting = [...left];
    const work = async (): Promise<void> => {
      for (let table = waiting.shift(); table !== undefined; table = waiting.shift()) {
        try {
          await call(table);
          left.delete(table);
        } catch (error) {
          refused.push(findingOf(table, Problem.from(error)));
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (refused.length > 0) throw notForAll(tables.length, refused);
  };
}

const findingOf = (table: Table, { code, detail, remedy }: Problem): Finding => ({
  severity: "error",
  code,
  what: `${tableName(table)}: ${detail}`,
  remedy,
});

function notForAll(total: number, refused: Finding[]): Problem {
  const done = total - refused.length;
  return new Problem({
    status: 0,
    code: "not_for_all",
    title: done === 0 ? "The server refused this" : "Not all of it was done",
    detail: `It was done for ${done} of ${some(total, "table")}.`,
    remedy: "Correct what is named below, and press the button again: only the refused tables are tried.",
    findings: refused.sort((a, b) => a.what.localeCompare(b.what)),
  });
}
