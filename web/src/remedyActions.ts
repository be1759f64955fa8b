import { type Action, reload, reloadAll, resumeAll, retry, tablePath } from "./actions";
import { ALERTS, CONNECTIONS, connectionAddress, FLEET, NEW_CONNECTION, subscriptionAddress, TOKENS, tableAddress } from "./addresses";
import { answer, client, everyItem, LARGEST_PAGE, type Table } from "./api/client";
import { Problem, type RemedyAction } from "./api/problem";
import { ddlCaptureInstallation, ddlCaptureRemoval } from "./ddlCaptureActions";
import type { Place } from "./labels/remedies";
import { tableName } from "./labels/tables";
import type { Role } from "./usePermission";

/** How an operation that a remedy names is done from here: at once, on another page, or only by a command. */
export type Offer =
  /** `onPage`: the page that shows the remedy has the button. */
  | { by: "button"; action: Action; onPage: boolean }
  | { by: "link"; label: string; address: string; role: Role | null }
  | { by: "command"; command: string };

type Arguments = Record<string, string>;
type Found = Offer | null;

const button = (action: Action): Offer => ({ by: "button", action, onPage: false });
const link = (label: string, address: string, role: Role | null = null): Offer => ({ by: "link", label, address, role });

interface Known {
  /** The page whose own buttons and parts do it; there it is not offered a second time. */
  place?: Place;
  /** Null where an argument is missing that it needs. */
  offer: (given: Arguments) => Found;
}

/** Ids have no dot. A name is found on its subscription's page, since addresses of tables are made of ids. */
const tablePage = ({ subscription, table }: Arguments): Found => {
  if (subscription === undefined) return null;
  if (table === undefined) return link(`Tables of ${subscription}`, subscriptionAddress(subscription));
  const named = `${subscriptionAddress(subscription)}?${new URLSearchParams({ q: table }).toString()}`;
  return link(`Open ${table}`, table.includes(".") ? named : tableAddress(subscription, table));
};

const ofTable = (made: typeof reload): Known => ({
  place: "table",
  offer: (given) => {
    const { subscription, table } = given;
    if (subscription === undefined || table === undefined) return tablePage(given);
    return button(made(table, async () => tablePath(subscription, (await tableOf(subscription, table)).id)));
  },
});

const ofSubscription = (made: (name: string) => Action): Known => ({
  place: "subscription",
  offer: ({ subscription }) => (subscription === undefined ? null : button(made(subscription))),
});

const subscriptionPage: Known = {
  place: "subscription",
  offer: ({ subscription }) => (subscription === undefined ? null : link(`Open ${subscription}`, subscriptionAddress(subscription))),
};

const ofConnection = (made: (name: string) => Offer): Known => ({
  place: "connection",
  offer: ({ connection }) => (connection === undefined ? link("Connections", CONNECTIONS) : made(connection)),
});

const anywhere = (offer: Offer): Known => ({ offer: () => offer });

/** By the names of `server/remedies.py`. What is not here has no page: its command is shown. */
const KNOWN: Readonly<Record<string, Known>> = {
  "table.reload": ofTable(reload),
  "table.retry": ofTable(retry),
  // Its statements are on the table's page; nothing is approved unseen.
  "table.approve": { place: "table", offer: tablePage },
  "table.partitions": { place: "table", offer: tablePage },
  "table.refused_rows": { place: "table", offer: tablePage },
  "table.list": subscriptionPage,
  "subscription.reload": ofSubscription(reloadAll),
  "subscription.resume": ofSubscription(resumeAll),
  "subscription.get": subscriptionPage,
  "subscription.list": anywhere(link("Fleet", FLEET)),
  "connection.change": ofConnection((name) => link(`Change ${name}`, connectionAddress(name), "operator")),
  "connection.list": anywhere(link("Connections", CONNECTIONS)),
  "connection.kinds": anywhere(link("New connection", NEW_CONNECTION, "operator")),
  "ddl_capture.show": ofConnection((name) => link(`Open ${name}`, connectionAddress(name))),
  "ddl_capture.install": ofConnection((name) => button(ddlCaptureInstallation(name))),
  "ddl_capture.remove": ofConnection((name) => button(ddlCaptureRemoval(name))),
  "token.list": anywhere(link("Tokens", TOKENS, "admin")),
  "alert_channel.list": anywhere(link("Alerts", ALERTS)),
};

/** What is offered for an operation; null where the page `here` shows what a link would lead to. One of a newer server, or without a page, is offered as its command. */
export function offerOf({ action, arguments: given, command }: RemedyAction, here?: Place): Found {
  const known = Object.hasOwn(KNOWN, action) ? KNOWN[action] : undefined;
  const offer = known?.offer(given) ?? null;
  if (known?.place !== undefined && known.place === here) return offer?.by === "button" ? { ...offer, onPage: true } : null;
  // A server of an earlier release has no commands.
  return offer ?? { by: "command", command: command ?? action };
}

/** The table of this name (`schema.name`, both of which may contain dots) or id. */
async function tableOf(subscription: string, wanted: string): Promise<Table> {
  const parts = wanted.split(".");
  const only = parts.length === 2 ? { schema: parts[0], name: parts[1] } : {};
  const tables = await everyItem((page_token) =>
    answer(
      client.GET("/api/v1/subscriptions/{name}/tables", {
        params: { path: { name: subscription }, query: { page_size: LARGEST_PAGE, page_token, ...only } },
      }),
    ),
  );
  const found = tables.filter((table) => table.id === wanted || tableName(table) === wanted);
  if (found.length === 1 && found[0] !== undefined) return found[0];
  throw new Problem({
    status: 404,
    code: "not_found",
    title: "Not found",
    detail: `The subscription ${subscription} has ${found.length === 0 ? "no table" : "several tables"} named ${wanted}.`,
    remedy: "Open the subscription's page, which lists its tables.",
  });
}
