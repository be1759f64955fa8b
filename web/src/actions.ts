import { FLEET } from "./addresses";
import { answer, client, type Subscription, type Table } from "./api/client";
import { keys } from "./api/queries";
import { qualified, tableName } from "./labels/tables";
import { queryClient } from "./stream/queryClient";
import type { Role } from "./usePermission";

/** Something that a person can have done, and what is said before it is. */
export interface Action {
  verb: string;
  title: string;
  /** What will happen, in order. */
  does: string[];
  /** A further choice; what it returns when taken. */
  choice?: { label: string; loses: string };
  /** What is lost in any case; the name has to be typed then. */
  loses?: string;
  /** What has to be typed where something is lost. */
  name: string;
  serious?: boolean;
  /** Who may do it; operators, where it is not said. */
  role?: Role;
  run: (chosen: boolean) => Promise<unknown>;
  /** What is announced once the server has accepted it. */
  done: string;
  /** The subject of the announcement, which is dismissed when the state of the subject changes. */
  subject?: { state: () => string | undefined };
  /** Where to go then, if not to stay. */
  leadsTo?: string;
}

type TablePath = { params: { path: { name: string; table_id: string } } };

export const tablePath = (subscription: string, id: string): TablePath => ({ params: { path: { name: subscription, table_id: id } } });

/** What can be done to a table in the state it is in; the first is what its state asks for. */
export function tableActions(subscription: string, table: Table): Action[] {
  const subject = { state: () => knownTable(subscription, table.id) };
  return possible(subscription, table).map((action) => ({ ...action, subject }));
}

/** As it was last read: its state and since when. */
function knownTable(subscription: string, id: string): string | undefined {
  const kept = queryClient.getQueriesData<Table | Table[]>({ queryKey: keys.ofSubscription(subscription) });
  const tables = kept.flatMap(([, data]) => data ?? []).filter((found) => found.id === id);
  return newest(tables);
}

function knownSubscription(name: string): string | undefined {
  const one = queryClient.getQueryData<Subscription>(keys.ofSubscription(name));
  const all = queryClient.getQueryData<Subscription[]>(keys.subscriptions) ?? [];
  return newest([...(one === undefined ? [] : [one]), ...all.filter((found) => found.name === name)]);
}

function newest(found: { state: string; state_since?: string | null | undefined }[]): string | undefined {
  const known = found.map(({ state, state_since }) => `${state_since ?? ""} ${state}`);
  return known.sort().at(-1);
}

function possible(subscription: string, table: Table): Action[] {
  const path = tablePath(subscription, table.id);
  switch (table.state) {
    case "live":
      return [pause(table, path), reload(tableName(table), async () => path), remove(table, path)];
    case "paused":
      return [resume(table, path), reload(tableName(table), async () => path), remove(table, path)];
    case "parked":
      return [remedyOf(table, path), remove(table, path)];
    case "registered":
    case "copying":
    case "catching_up":
    case "reloading":
      return [remove(table, path)];
    default:
      return [];
  }
}

/** Codes whose remedy is a reload as such: nothing has to be mended first. */
const RELOADED = new Set([
  "table_structure_changed",
  "table_partitions_changed",
  "net_change_anomaly",
  "copy_failed",
  "deferred_over_budget",
]);

function remedyOf(table: Table, path: TablePath): Action {
  if (table.code === "schema_change_waiting") return approve(table, path);
  const again = RELOADED.has(table.code ?? "") ? reload : retry;
  return again(tableName(table), async () => path);
}

function setDesired(path: TablePath, desired_state: "running" | "paused"): Promise<unknown> {
  return answer(client.PATCH("/api/v1/subscriptions/{name}/tables/{table_id}", { ...path, body: { desired_state } }));
}

function pause(table: Table, path: TablePath): Action {
  const name = tableName(table);
  return {
    verb: "Pause",
    title: `Pause ${name}?`,
    does: [
      "No more changes of it are applied; its rows stay readable as they are.",
      "What changes meanwhile is kept until it goes on; a long pause takes disk space.",
      "The other tables are not affected.",
    ],
    name,
    run: () => setDesired(path, "paused"),
    done: `${name}: a pause was requested.`,
  };
}

function resume(table: Table, path: TablePath): Action {
  const name = tableName(table);
  return {
    verb: "Resume",
    title: `Resume ${name}?`,
    does: ["What was kept since the pause is applied, then the table follows the source again."],
    name,
    run: () => setDesired(path, "running"),
    done: `${name}: a resume was requested.`,
  };
}

/** `path` is asked for when the action is taken. */
export function reload(name: string, path: () => Promise<TablePath>): Action {
  return {
    verb: "Reload",
    title: `Reload ${name}?`,
    does: [
      "All its rows are read from the source again, which loads the source.",
      "The old rows stay readable until the new ones replace them, all at once.",
      "The other tables are not affected.",
    ],
    name,
    run: async () => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/reloads", await path())),
    done: `${name}: a reload was asked for.`,
  };
}

/** `path` is asked for when the action is taken. */
export function retry(name: string, path: () => Promise<TablePath>): Action {
  return {
    verb: "Try again",
    title: `Try ${name} again?`,
    does: [
      "The cause of the parking is checked first; if it remains, nothing happens and the cause is shown.",
      "Then the table is copied again; its old rows stay readable until the new ones replace them.",
    ],
    name,
    run: async () => answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/retries", await path())),
    done: `${name}: it is tried again.`,
  };
}

function approve(table: Table, path: TablePath): Action {
  const name = tableName(table);
  return {
    verb: "Approve",
    title: `Approve the change of ${name}?`,
    does: [table.reason ?? "The change that the table waits with.", "It is made on the target, then what was kept since is applied."],
    name,
    run: () =>
      answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/approvals", { ...path, body: { reason: table.reason ?? null } })),
    done: `${name}: the change was approved.`,
  };
}

function remove(table: Table, path: TablePath): Action {
  const name = tableName(table);
  return {
    verb: "Remove",
    title: `Remove ${name}?`,
    does: ["It is no longer replicated. Its history stays readable here.", "Adding it again means copying it again; no pattern adds it."],
    choice: {
      label: `Drop ${qualified(table.target)} on the target, too`,
      loses: `All rows of ${qualified(table.target)} on the target are lost. A table that its owner made, or that others depend on, stays.`,
    },
    name,
    serious: true,
    run: (drop) =>
      answer(
        client.DELETE("/api/v1/subscriptions/{name}/tables/{table_id}", {
          params: { ...path.params, query: { target_table: drop ? "drop" : "keep" } },
        }),
      ),
    done: `${name}: it was removed.`,
  };
}

/** What can be done to a subscription in the state it is in. */
export function subscriptionActions(subscription: Subscription): Action[] {
  const subject = { state: () => knownSubscription(subscription.name) };
  return possibleNow(subscription).map((action) => ({ ...action, subject }));
}

function possibleNow(subscription: Subscription): Action[] {
  const { name, state, desired_state } = subscription;
  if (subscription.deleting) return [deleteAtOnce(subscription)];
  const found: Action[] = [];
  if (state === "failed") {
    const does = ["The engine continues from the target's position. If the cause remains, it fails again and reports it."];
    const run = setAll(name, "running");
    found.push({ verb: "Try again", title: `Try ${name} again?`, does, name, run, done: `${name}: it is tried again.` });
  } else if (desired_state !== "running") {
    found.push(resumeAll(name));
  } else {
    const does = [
      "No changes are applied to any of its tables; all rows stay readable as they are. Waits for freshness fail while it is paused.",
      "The source keeps its log for the subscription meanwhile, which takes disk space there.",
    ];
    found.push({
      verb: "Pause",
      title: `Pause ${name}?`,
      does,
      name,
      run: setAll(name, "paused"),
      done: `${name}: a pause was requested.`,
    });
  }
  if (state === "failed" || state === "running") found.push(reloadAll(name));
  found.push(deletion(subscription));
  return found;
}

const setAll =
  (name: string, wanted: "running" | "paused"): (() => Promise<unknown>) =>
  () =>
    answer(client.PATCH("/api/v1/subscriptions/{name}", { params: { path: { name } }, body: { desired_state: wanted } }));

/** From a pause or after a fault. */
export function resumeAll(name: string): Action {
  const does = ["It continues where it stopped, and catches up."];
  return { verb: "Resume", title: `Resume ${name}?`, does, name, run: setAll(name, "running"), done: `${name}: a resume was requested.` };
}

function deletion({ name, source, target, slot }: Subscription): Action {
  return {
    verb: "Delete",
    title: `Delete ${name}?`,
    does: [
      `Replication ends. The engine drops the slot and the publications ${slot} on ${source}.`,
      `The tables on ${target} stay with the rows that they have then, and are no longer updated.`,
      "The connections stay.",
    ],
    loses:
      "Its place in the source's log is lost, and what is known of its tables, batches and tickets. A new subscription copies everything again.",
    name,
    serious: true,
    run: () => answer(client.DELETE("/api/v1/subscriptions/{name}", { params: { path: { name } } })),
    done: `${name}: deleting was asked for.`,
    leadsTo: FLEET,
  };
}

function deleteAtOnce({ name, source, slot }: Subscription): Action {
  return {
    verb: "Delete at once",
    title: `Delete ${name} without waiting for the engine?`,
    does: [
      "It is being deleted already, but the engine has not said that slot and publications are gone.",
      "An event names what may be left on the source.",
    ],
    loses: `The slot ${slot} may stay on ${source}. There it holds the source's log, until its disk is full or the slot is dropped by hand.`,
    name,
    serious: true,
    run: () => answer(client.DELETE("/api/v1/subscriptions/{name}", { params: { path: { name }, query: { force: true } } })),
    done: `${name}: it was deleted.`,
    leadsTo: FLEET,
  };
}

export function reloadAll(name: string): Action {
  return {
    verb: "Reload all",
    title: `Reload all tables of ${name}?`,
    does: [
      "All rows of all its tables are read from the source again, which loads the source; where the slot is lost, a new one is made.",
      "The old rows stay readable until the new ones take their place.",
    ],
    name,
    run: () => answer(client.POST("/api/v1/subscriptions/{name}/reloads", { params: { path: { name } } })),
    done: `${name}: a reload of all tables was asked for.`,
  };
}
