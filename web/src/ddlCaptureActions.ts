import type { Action } from "./actions";
import { answer, client } from "./api/client";

/** Installs the triggers that write schema changes to the log of a connection's source. */
export const ddlCaptureInstallation = (name: string): Action => ({
  verb: "Install",
  title: `Install triggers in the source of ${name}?`,
  does: [
    "The statements shown on the connection's page run in one transaction, as the connection's user, who has to be a superuser.",
    "Subscriptions go on.",
  ],
  name,
  role: "admin",
  run: () => answer(client.PUT("/api/v1/connections/{name}/ddl-capture", { params: { path: { name } } })),
  done: `${name}: the triggers were installed.`,
});

export const ddlCaptureRemoval = (name: string): Action => ({
  verb: "Remove",
  title: `Remove the triggers from the source of ${name}?`,
  does: ["Schema changes are learnt from the log and the catalog then.", "Subscriptions go on."],
  name,
  role: "admin",
  run: () => answer(client.DELETE("/api/v1/connections/{name}/ddl-capture", { params: { path: { name } } })),
  done: `${name}: the triggers were removed.`,
});
