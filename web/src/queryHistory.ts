import type { QueryRequest } from "./api/freshness";
import { keep, recall } from "./storage";
import { Store } from "./store";

type Freshness = NonNullable<QueryRequest["freshness"]>;

/** A query that was sent: its text and options, and how it ended; neither rows nor values of parameters. */
export interface PastQuery {
  /** The name of the token that sent it. */
  caller: string;
  subscription: string;
  sql: string;
  freshness: Pick<Freshness, "mode" | "on_timeout" | "on_unavailable" | "refuse_early">;
  /** Its name; absent: none. */
  readPoint?: string | null;
  at: string;
  /** As "3 rows", or the code of the refusal. */
  ended: string;
}

const KEY = "penstock-queries";
const MOST_OF_SUBSCRIPTION = 50;
const MOST = 500;
/** Browsers keep about 5 million characters for all of an address. */
const MOST_CHARACTERS = 500_000;

const TEXTS = ["caller", "subscription", "sql", "at", "ended"] as const;

/** Another release of the console may have written something else. */
const isPastQuery = (found: unknown): found is PastQuery =>
  typeof found === "object" &&
  found !== null &&
  TEXTS.every((name) => typeof (found as Record<string, unknown>)[name] === "string") &&
  typeof (found as PastQuery).freshness === "object" &&
  (found as PastQuery).freshness !== null;

function read(): PastQuery[] {
  try {
    const found: unknown = JSON.parse(recall("local", KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isPastQuery) : [];
  } catch {
    return [];
  }
}

/** The newest first, of all callers and subscriptions of this browser. */
export const queryHistory = new Store<PastQuery[]>(read());

// Another tab has written it.
globalThis.addEventListener?.("storage", ({ key }) => {
  if (key === KEY || key === null) queryHistory.set(read());
});

function write(found: PastQuery[]): void {
  keep("local", KEY, found.length === 0 ? null : JSON.stringify(found));
  queryHistory.set(found);
}

const sameOwner = (one: PastQuery, { caller, subscription }: Pick<PastQuery, "caller" | "subscription">): boolean =>
  one.caller === caller && one.subscription === subscription;

/** Puts a query at the top; sent again, it is not there twice. */
export function rememberQuery(query: PastQuery): void {
  const others = read().filter((one) => !(sameOwner(one, query) && one.sql === query.sql));
  write(bounded([query, ...others]));
}

/** The newest as far as they are kept: a number of each subscription, and a number and a size of all. */
function bounded(queries: PastQuery[]): PastQuery[] {
  const counts = new Map<string, number>();
  let characters = 0;
  return queries
    .filter((query) => {
      const owner = JSON.stringify([query.caller, query.subscription]);
      const count = (counts.get(owner) ?? 0) + 1;
      counts.set(owner, count);
      if (count > MOST_OF_SUBSCRIPTION || characters + query.sql.length > MOST_CHARACTERS) return false;
      characters += query.sql.length;
      return true;
    })
    .slice(0, MOST);
}

export function forgetQueries(caller: string, subscription: string): void {
  write(read().filter((one) => !sameOwner(one, { caller, subscription })));
}

export function forgetAllQueries(): void {
  write([]);
}

export const queriesOf = (all: PastQuery[], caller: string, subscription: string): PastQuery[] =>
  all.filter((one) => sameOwner(one, { caller, subscription }));
