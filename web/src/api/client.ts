import createClient from "openapi-fetch";
import { noteServerTime } from "../clock";
import { bearer, refuse, session } from "../session";
import { Problem } from "./problem";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Subscription = Schemas["SubscriptionView"];
export type Table = Schemas["TableView"];
export type Version = Schemas["VersionView"];
export type VersionColumn = Schemas["VersionColumn"];
export type Reload = Schemas["ReloadView"];
export type RefusedRow = Schemas["RefusedRowView"];
export type RefusedRowsOutcome = Schemas["RefusedRowsOutcome"];
export type Event = Schemas["EventView"];
export type Node = Schemas["NodeView"];
export type Connection = Schemas["ConnectionView"];
export type ConnectionPut = Schemas["ConnectionPut"];
export type ConnectionKind = Schemas["ConnectionKindView"];
export type SampleSource = Schemas["SampleSourceView"];
export type QualifiedName = Schemas["QualifiedName"];
export type ChangeTriggers = Schemas["ChangeTriggersView"];
export type PlannedStatement = Schemas["PlannedStatementView"];
export type SourceTable = Schemas["SourceTableView"];
export type SubscriptionPut = Schemas["SubscriptionPut"];
export type TableBody = Schemas["TableBody"];
export type TablePatch = Schemas["TablePatch"];
export type TablePlan = Schemas["TablePlan"];
export type Mask = Schemas["Mask"];
export type Partition = Schemas["PartitionView"];
export type Verification = Schemas["VerificationView"];
/** The last comparison of a table. */
export type Comparison = Schemas["VerifiedView"];
export type VerifiedTable = Schemas["VerifiedTableView"];
export type Finding = Schemas["FindingView"];
export type Checks = Schemas["ChecksView"];

const sentWith = new WeakMap<Request, string | null>();

/** Typed by the OpenAPI document: only what it names can be called. */
export const client = createClient<paths>({ fetch: (request) => fetch(request) });
client.use({
  onRequest({ request }) {
    const { token } = session.get();
    sentWith.set(request, token);
    for (const [name, value] of Object.entries(bearer(token))) request.headers.set(name, value);
    return request;
  },
  onResponse({ request, response }) {
    noteServerTime(response);
    if (response.status === 401) refuse(sentWith.get(request) ?? null);
  },
});

/** The body of a good answer; whatever else comes is thrown as a Problem. */
export async function answer<Body>(call: Promise<{ data?: Body; error?: unknown; response: Response }>): Promise<Body> {
  let result: Awaited<typeof call>;
  try {
    result = await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw Problem.unreachable();
  }
  if (!result.response.ok) throw Problem.of(result.response, result.error);
  return result.data as Body;
}

interface Page<Item> {
  items: Item[];
  next_page_token?: string | null;
}

export const LARGEST_PAGE = 1000;

/** All items of a list, page after page. */
export async function everyItem<Item>(read: (pageToken?: string) => Promise<Page<Item>>): Promise<Item[]> {
  const items: Item[] = [];
  let token: string | undefined;
  do {
    const page = await read(token);
    items.push(...page.items);
    token = page.next_page_token ?? undefined;
  } while (token !== undefined);
  return items;
}
