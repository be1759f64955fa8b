import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { subscriptionAddress } from "../addresses";
import { answer, client, type Checks, type Connection, type Subscription } from "../api/client";
import { connectionsQuery, subscriptionsQuery } from "../api/queries";
import { matches, useFilters } from "../filters";
import { Findings } from "../parts/findings";
import { Loaded } from "../parts/loaded";
import { Mark } from "../parts/mark";
import { Page } from "../parts/page";
import { ProblemNote } from "../parts/problemNote";
import { SearchField } from "../parts/searchField";
import { count, some } from "../words/numbers";

/** How databases are reached, what uses them, and whether they are fit for it. */
export function ConnectionsPage() {
  const connections = useQuery(connectionsQuery());
  const subscriptions = useQuery(subscriptionsQuery());
  return (
    <Page title="Connections">
      <Loaded query={connections}>
        {(items) =>
          items.length === 0 ? (
            <p className="prose">
              There is no connection yet. <code>penstock apply FILE</code> declares some, and so does{" "}
              <code>PUT /api/v1/connections/NAME</code>.
            </p>
          ) : (
            <List items={items} subscriptions={subscriptions.data ?? []} />
          )
        }
      </Loaded>
    </Page>
  );
}

function List({ items, subscriptions }: { items: Connection[]; subscriptions: Subscription[] }) {
  const filters = useFilters();
  const shown = items.filter((item) => matches(filters.get("q"), item.name, place(item)));
  return (
    <>
      <SearchField label="Find by name or place" filters={filters} result={`${count(shown.length)} of ${some(items.length, "connection")}`} />
      <ul className="connections">
        {shown.map((item) => (
          <Entry key={item.name} item={item} subscriptions={subscriptions} />
        ))}
      </ul>
    </>
  );
}

type Role = "source" | "target";

function Entry({ item, subscriptions }: { item: Connection; subscriptions: Subscription[] }) {
  const uses: [Role, Subscription[]][] = [
    ["source", subscriptions.filter(({ source }) => source === item.name)],
    ["target", subscriptions.filter(({ target }) => target === item.name)],
  ];
  const used = uses.filter(([, found]) => found.length > 0);
  const checked = used.map(([role]) => role);
  return (
    <li>
      <div className="connection-head">
        <h2>{item.name}</h2>
        <p>
          <span className="soft">{item.kind}</span> <code>{place(item)}</code>
        </p>
        <p className="soft">{item.secrets_set.length > 0 ? `${item.secrets_set.join(", ")} set` : "no secret set"}</p>
      </div>
      {used.length === 0 ? (
        <p className="soft">No subscription uses it.</p>
      ) : (
        used.map(([role, found]) => (
          <p key={role}>
            {role === "source" ? "Source of" : "Target of"} <Names subscriptions={found} />
          </p>
        ))
      )}
      {checked.length === 0 ? (
        <Check connection={item.name} role={null} />
      ) : (
        checked.map((role) => <Check key={role} connection={item.name} role={role} />)
      )}
    </li>
  );
}

const Names = ({ subscriptions }: { subscriptions: Subscription[] }) => (
  <>
    {subscriptions.map(({ name }, number) => (
      <span key={name}>
        {number > 0 && ", "}
        <Link href={subscriptionAddress(name)}>{name}</Link>
      </span>
    ))}
  </>
);

/** `role`: what it is checked to be used as; null: as a source, where its kind can be one. */
function Check({ connection, role }: { connection: string; role: Role | null }) {
  const work = useMutation({
    mutationFn: () =>
      answer(
        client.POST("/api/v1/connections/{name}/checks", {
          params: { path: { name: connection } },
          body: role === null ? null : { role },
        }),
      ),
  });
  const verb = work.isPending ? "Checking …" : role === null ? "Check" : `Check as a ${role}`;
  return (
    <div className="check-run">
      <button type="button" disabled={work.isPending} aria-label={`${verb}: ${connection}`} onClick={() => work.mutate()}>
        {verb}
      </button>
      <div role="status">{work.data !== undefined && <Outcome checks={work.data} />}</div>
      {work.error !== null && <ProblemNote error={work.error} />}
    </div>
  );
}

function Outcome({ checks }: { checks: Checks }) {
  const { findings } = checks;
  if (findings.length === 0) return <Mark tone="good">Nothing stands in the way.</Mark>;
  return (
    <>
      {checks.ok && <Mark tone="good">Nothing stands in the way; to be known:</Mark>}
      <Findings findings={findings} />
    </>
  );
}

/** Where a connection leads, from the settings that say so. */
function place({ settings }: Connection): string {
  if (settings.path !== undefined) return String(settings.path);
  const { host, port, database, user } = settings;
  if (host === undefined) return Object.values(settings).join(" ");
  return `${user === undefined ? "" : `${user}@`}${host}${port === undefined ? "" : `:${port}`}${database === undefined ? "" : `/${database}`}`;
}
