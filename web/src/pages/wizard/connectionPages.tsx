import { useQuery } from "@tanstack/react-query";
import { Suspense } from "react";
import { Link, useLocation } from "wouter";
import { CONNECTIONS, connectionAddress } from "../../addresses";
import type { Connection } from "../../api/client";
import { connectionsQuery } from "../../api/queries";
import { ActionButtons } from "../../components/actions";
import { announce } from "../../components/announcements";
import { Fact, Facts } from "../../components/facts";
import { Page, Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { Statements } from "../../components/statements";
import { StatusBadge } from "../../components/statusBadge";
import { ddlCaptureInstallation, ddlCaptureRemoval } from "../../ddlCaptureActions";
import { isByTriggers, kindLabel, nodesOf, placeOf, rolesOf } from "../../labels/kinds";
import { later } from "../../later";
import { useKinds } from "../../useKinds";
import { ConnectionForm } from "./connectionForm";
import { connectionQuery, ddlCaptureQuery } from "./queries";

const ChangeTriggers = later(async () => (await import("./changeTriggers")).ChangeTriggers);

const above = <Link href={CONNECTIONS}>Connections</Link>;

/** Returns to the list, and announces there what was done. */
function useSaved(done: (name: string) => string): (name: string) => void {
  const [, navigate] = useLocation();
  return (name) => {
    navigate(CONNECTIONS);
    setTimeout(() => announce(done(name)));
  };
}

export function NewConnectionPage() {
  const connections = useQuery(connectionsQuery());
  const saved = useSaved((name) => `${name}: the connection was created.`);
  return (
    <Page title="New connection" above={above}>
      <QueryBoundary query={connections}>
        {(items) => <ConnectionForm present={null} role={null} taken={items.map(({ name }) => name)} onSaved={saved} />}
      </QueryBoundary>
    </Page>
  );
}

/** One connection: how it is reached, and how its source reports changes of structure. */
export function ConnectionPage({ name }: { name: string }) {
  const found = useQuery({ ...connectionQuery(name), refetchInterval: false });
  const kinds = useKinds();
  const saved = useSaved(() => `${name}: the connection was changed; running subscriptions take it over.`);
  return (
    <Page title={name} above={above}>
      <QueryBoundary query={found}>
        {(present) => (
          <>
            <Section title="Settings" aside={kindLabel(kinds, present.connection.kind)}>
              <ConnectionForm present={present} role={null} taken={[]} onSaved={saved} />
            </Section>
            {nodesOf(present.connection).length > 0 && (
              <Section title="Databases of the nodes" aside="In their order">
                <Nodes connection={present.connection} />
              </Section>
            )}
            {isByTriggers(kinds, present.connection) && (
              <Section title="Triggers that record changes" aside="As a source">
                <Suspense fallback={<p className="soft">Loading …</p>}>
                  <ChangeTriggers name={present.connection.name} />
                </Suspense>
              </Section>
            )}
            {rolesOf(kinds, present.connection).includes("source") && (
              <Section title="Changes of structure" aside="As a source">
                <DdlCapture connection={present.connection} />
              </Section>
            )}
          </>
        )}
      </QueryBoundary>
    </Page>
  );
}

/** The connections that it consists of. */
function Nodes({ connection }: { connection: Connection }) {
  const connections = useQuery(connectionsQuery());
  return (
    <Facts>
      {nodesOf(connection).map(({ name, connection: of }) => {
        const node = connections.data?.find((each) => each.name === of);
        return (
          <Fact key={name} name={name} note={node === undefined ? undefined : <code>{placeOf(node)}</code>}>
            <Link href={connectionAddress(of)}>{of}</Link>
          </Fact>
        );
      })}
    </Facts>
  );
}

/** The triggers that write changes of structure to the log: whether they are there, what installing them would run, and the button for it. */
function DdlCapture({ connection: { name } }: { connection: Connection }) {
  const capture = useQuery(ddlCaptureQuery(name));
  if (capture.error !== null) return <ProblemNote error={capture.error} />;
  if (capture.data === undefined) return <p className="soft">Asking the source …</p>;
  const { installed, current, install_sql, remove_sql } = capture.data;
  if (!installed && install_sql.length === 0) {
    return <p className="prose">They are learnt from the recorded changes and the source's catalog; nothing has to be done.</p>;
  }
  const actions = [...(current ? [] : [ddlCaptureInstallation(name)]), ...(installed ? [ddlCaptureRemoval(name)] : [])];
  return (
    <>
      <p className="prose">
        <StatusBadge tone={current ? "good" : installed ? "warn" : "idle"}>
          {current
            ? "Triggers write them to the log."
            : installed
              ? "There are triggers, but not whole, or of another version."
              : "They are learnt from the log and the catalog; nothing has to be done."}
        </StatusBadge>{" "}
        <span className="soft">Triggers write them inside the transactions that make them; installing them needs a superuser.</span>
      </p>
      <div className="actions">
        <ActionButtons actions={actions} />
      </div>
      <details className="more">
        <summary>{current ? "What removing them runs" : "What installing them runs"}</summary>
        <Statements name={current ? "Removing the triggers" : "Installing the triggers"} sql={current ? remove_sql : install_sql} />
      </details>
    </>
  );
}
