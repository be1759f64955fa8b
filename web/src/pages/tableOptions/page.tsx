import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { FLEET, subscriptionAddress, tableAddress } from "../../addresses";
import { answer, client, type SourceTable, type Subscription, type Table } from "../../api/client";
import { Problem } from "../../api/problem";
import { keys, subscriptionQuery, tableQuery } from "../../api/queries";
import { announce } from "../../components/announcements";
import { Page } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { tableName } from "../../labels/tables";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";
import { sourceTablesQuery } from "../wizard/queries";
import { bodyOf, draftOf, type OptionsDraft, patchOf, wrongPriority } from "./draft";
import { OptionFields } from "./fields";
import { Review } from "./review";

/** Changes the options of a table, and says before what that does. */
export function TableOptionsPage({ subscription, id }: { subscription: string; id: string }) {
  const table = useQuery(tableQuery(subscription, id));
  const found = useQuery(subscriptionQuery(subscription));
  return (
    <Page
      title={table.data === undefined ? "Options" : `Options of ${tableName(table.data)}`}
      above={
        <>
          <Link href={FLEET}>Fleet</Link> / <Link href={subscriptionAddress(subscription)}>{subscription}</Link> /{" "}
          <Link href={tableAddress(subscription, id)}>{table.data === undefined ? "Table" : tableName(table.data)}</Link>
        </>
      }
    >
      <QueryBoundary query={found}>
        {(of) => <QueryBoundary query={table}>{(present) => <Loaded key={present.id} subscription={of} table={present} />}</QueryBoundary>}
      </QueryBoundary>
    </Page>
  );
}

interface Of {
  subscription: Subscription;
  table: Table;
}

function Loaded({ subscription, table }: Of) {
  const tables = useQuery(sourceTablesQuery(subscription.source, subscription.capture.kind));
  if (table.state === "removed") return <p className="prose">The table was removed; its options cannot be changed.</p>;
  if (tables.isPending) {
    return (
      <p className="soft" role="status">
        The engine asks the source for its columns …
      </p>
    );
  }
  const onSource = tables.data?.find(({ schema, name }) => schema === table.schema && name === table.name);
  return (
    <>
      {tables.error !== null && <ProblemNote error={tables.error} />}
      <OptionsForm subscription={subscription} table={table} onSource={onSource} />
      <p className="below">
        <button type="button" disabled={tables.isFetching} onClick={() => void tables.refetch()}>
          {tables.isFetching ? "Looking …" : "Read the columns again"}
        </button>
      </p>
    </>
  );
}

function OptionsForm({ subscription, table, onSource }: Of & { onSource: SourceTable | undefined }) {
  const { name } = subscription;
  const [, navigate] = useLocation();
  const mayChange = usePermission()("operator");
  // What others change meanwhile is not mixed into what is entered: only what differs from this is saved.
  const [opened] = useState(() => draftOf(table));
  const [entered, setEntered] = useState(opened);
  const patch = patchOf(opened, entered);
  const changed = Object.keys(patch).length > 0;
  const wrong = wrongPriority(entered.priority) !== null;
  const plan = useMutation({
    mutationFn: () =>
      answer(
        client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/plans", {
          params: { path: { name, table_id: table.id } },
          body: patch,
        }),
      ),
  });
  const edit = (changes: Partial<OptionsDraft>): void => {
    setEntered((before) => ({ ...before, ...changes }));
    plan.reset();
  };
  const saved = (reloading: boolean): void => {
    navigate(tableAddress(name, table.id));
    setTimeout(() => announce(`${tableName(table)}: its options were changed${reloading ? ", and a reload was requested" : ""}.`));
    void queryClient.invalidateQueries({ queryKey: keys.ofSubscription(name) });
  };
  const refused = plan.error === null ? null : Problem.from(plan.error);
  const nothing = plan.data !== undefined && plan.data.fields.length === 0;
  return (
    <>
      <form
        className="options"
        onSubmit={(event) => {
          event.preventDefault();
          if (changed && !wrong && !plan.isPending) plan.mutate();
        }}
      >
        <fieldset className="options" disabled={!mayChange}>
          <legend className="unseen">Options of {tableName(table)}</legend>
          <OptionFields draft={entered} onChange={edit} columns={onSource?.columns ?? null} keyed={onSource?.key ?? []} refused={refused} />
        </fieldset>
        {refused !== null && <ProblemNote error={refused} />}
        <div className="form-foot">
          {mayChange && (
            <button type="submit" className="primary" disabled={!changed || wrong || plan.isPending}>
              {plan.isPending ? "Asking …" : "Review the change"}
            </button>
          )}
          <span className="soft" role="status">
            {!mayChange
              ? "Changes require an operator's token; yours is read-only."
              : !changed || nothing
                ? "Nothing is changed."
                : "Nothing is saved before you have seen what it does."}
          </span>
        </div>
      </form>
      {plan.data !== undefined && !nothing && (
        <Review
          subscription={subscription}
          table={table}
          patch={patch}
          plan={plan.data}
          body={bodyOf(table, entered, table.target)}
          onClose={plan.reset}
          onSaved={saved}
        />
      )}
    </>
  );
}
