import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Action } from "../actions";
import { connectionAddress, NEW_CONNECTION, subscriptionAddress } from "../addresses";
import { answer, type Checks, type Connection, client, type SampleSource, type Subscription } from "../api/client";
import { connectionsQuery, subscriptionsQuery } from "../api/queries";
import { ActionButtons } from "../components/actions";
import { Findings } from "../components/findings";
import { Page, Section } from "../components/page";
import { ProblemNote } from "../components/problemNote";
import { QueryBoundary } from "../components/queryBoundary";
import { SearchField } from "../components/searchField";
import { StatusBadge } from "../components/statusBadge";
import { matches, useFilters } from "../filters";
import { kindLabel, placeOf, wholesOf } from "../labels/kinds";
import { count, some } from "../labels/numbers";
import { useKinds } from "../useKinds";
import { usePermission } from "../usePermission";
import { sampleQuery } from "./wizard/queries";
import { SampleSourcePart } from "./wizard/sampleSource";

/** How databases are reached, what uses them, and whether they are fit for it. */
export function ConnectionsPage() {
  const connections = useQuery(connectionsQuery());
  const subscriptions = useQuery(subscriptionsQuery());
  const may = usePermission();
  return (
    <Page
      title="Connections"
      actions={
        may("operator") && (
          <Link href={NEW_CONNECTION} className="button">
            New connection
          </Link>
        )
      }
    >
      <QueryBoundary query={connections}>
        {(items) =>
          items.length === 0 ? (
            <p className="prose">There is no connection yet. A subscription needs two: one to its source, one to its target.</p>
          ) : (
            <List items={items} subscriptions={subscriptions.data ?? []} />
          )
        }
      </QueryBoundary>
      <Section title="Sample database" aside="On the server's machine">
        <p className="prose soft">
          A small shop under a light load, as a source to try things with. It comes back with the server until it is removed.
        </p>
        <SampleSourcePart removable />
      </Section>
    </Page>
  );
}

function List({ items, subscriptions }: { items: Connection[]; subscriptions: Subscription[] }) {
  const filters = useFilters();
  const sample = useQuery(sampleQuery());
  const shown = items.filter((item) => matches(filters.get("q"), item.name, placeOf(item)));
  return (
    <>
      <SearchField
        label="Find by name or place"
        filters={filters}
        result={`${count(shown.length)} of ${some(items.length, "connection")}`}
      />
      <ul className="connections">
        {shown.map((item) => (
          <Entry
            key={item.name}
            item={item}
            wholes={wholesOf(items, item.name)}
            subscriptions={subscriptions}
            ofSample={isSample(item, sample.data)}
          />
        ))}
      </ul>
    </>
  );
}

type Role = "source" | "target";

interface EntryProps {
  item: Connection;
  /** Connections of which it is a node. */
  wholes: Connection[];
  subscriptions: Subscription[];
  /** It comes and goes with the sample database. */
  ofSample: boolean;
}

function Entry({ item, wholes, subscriptions, ofSample }: EntryProps) {
  const kinds = useKinds();
  const uses: [Role, Subscription[]][] = [
    ["source", subscriptions.filter(({ source }) => source === item.name)],
    ["target", subscriptions.filter(({ target }) => target === item.name)],
  ];
  const used = uses.filter(([, found]) => found.length > 0);
  const checked = used.map(([role]) => role);
  const mayChange = usePermission()("operator");
  return (
    <li>
      <div className="connection-head">
        <h2>{item.name}</h2>
        <p>
          <span className="soft">{kindLabel(kinds, item.kind)}</span> <code>{placeOf(item)}</code>
        </p>
        <p className="soft">{item.secrets_set.length > 0 ? `${item.secrets_set.join(", ")} set` : "no secret set"}</p>
        {!ofSample && mayChange && (
          <div className="row-actions">
            <Link href={connectionAddress(item.name)} aria-label={`Change ${item.name}`}>
              Change
            </Link>
            {used.length === 0 && wholes.length === 0 && <ActionButtons actions={[deletion(item)]} />}
          </div>
        )}
      </div>
      {wholes.length > 0 && (
        <p>
          Node of{" "}
          {wholes.map(({ name }, number) => (
            <span key={name}>
              {number > 0 && ", "}
              <Link href={connectionAddress(name)}>{name}</Link>
            </span>
          ))}
        </p>
      )}
      {used.length === 0 ? (
        <p className="soft">No subscription uses it{wholes.length > 0 && " directly"}.</p>
      ) : (
        used.map(([role, found]) => (
          <p key={role}>
            {role === "source" ? "Source of" : "Target of"} <Names subscriptions={found} />
          </p>
        ))
      )}
      {mayChange &&
        (checked.length === 0 ? (
          <Check connection={item.name} role={null} />
        ) : (
          checked.map((role) => <Check key={role} connection={item.name} role={role} />)
        ))}
    </li>
  );
}

const isSample = ({ name }: Connection, sample: SampleSource | undefined): boolean =>
  sample !== undefined && name === sample.connection && sample.state !== "absent" && sample.state !== "unavailable";

const deletion = ({ name }: Connection): Action => ({
  verb: "Delete",
  title: `Delete the connection ${name}?`,
  does: ["No subscription uses it. The database itself is not touched."],
  loses: "How it is reached is forgotten, with the password, which cannot be read back.",
  name,
  serious: true,
  run: () => answer(client.DELETE("/api/v1/connections/{name}", { params: { path: { name } } })),
  done: `${name}: the connection was deleted.`,
});

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
  if (findings.length === 0) return <StatusBadge tone="good">No problems found.</StatusBadge>;
  return (
    <>
      {checks.ok && <StatusBadge tone="good">No problems found. Notes:</StatusBadge>}
      <Findings findings={findings} />
    </>
  );
}
