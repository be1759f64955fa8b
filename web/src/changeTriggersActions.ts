import type { Action } from "./actions";
import { answer, client, type QualifiedName } from "./api/client";
import { some } from "./labels/numbers";

const install = (name: string, tables: QualifiedName[]): Promise<unknown> =>
  answer(client.PUT("/api/v1/connections/{name}/change-triggers", { params: { path: { name } }, body: { tables } }));

/** Installs triggers that record the changes of these tables. */
export const changeTriggersInstallation = (name: string, tables: QualifiedName[]): Action => ({
  verb: "Install triggers",
  title: `Install triggers on ${some(tables.length, "table")} of ${name}?`,
  does: [
    "The statements of the plan run, as the connection's user.",
    "From then on each change of these tables is also recorded, in the transaction that makes it.",
    "What is recorded is kept until a subscription has read it: start one soon.",
  ],
  name,
  role: "admin",
  run: () => install(name, tables),
  done: `${name}: the triggers were installed.`,
});

/** Brings triggers that are outdated or incomplete up to date. */
export const changeTriggersUpdate = (name: string): Action => ({
  verb: "Update triggers",
  title: `Bring the triggers of ${name} up to date?`,
  does: [
    "The statements shown on the connection's page run, as the connection's user.",
    "A table of a subscription whose triggers had been dropped or disabled is parked, since changes may be missing; reload it then.",
  ],
  name,
  role: "admin",
  run: () => install(name, []),
  done: `${name}: the triggers are up to date.`,
});

export const changeTriggersRemoval = (name: string): Action => ({
  verb: "Remove triggers",
  title: `Remove the triggers of ${name}?`,
  does: [
    "All triggers, the recorded changes and what holds them are dropped.",
    "It is refused while a subscription reads the changes, of this server or of another one.",
  ],
  loses: "Changes that are recorded and not read yet are lost.",
  name,
  serious: true,
  role: "admin",
  run: () => answer(client.DELETE("/api/v1/connections/{name}/change-triggers", { params: { path: { name } } })),
  done: `${name}: the triggers were removed.`,
});
