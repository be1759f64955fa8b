import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { FLEET, subscriptionAddress, subscriptionPart, tableAddress } from "../../addresses";
import { answer, client, type SourceTable, type Subscription, type Table, type TableBody } from "../../api/client";
import { Problem } from "../../api/problem";
import { keys, subscriptionQuery, tablesQuery } from "../../api/queries";
import { announce } from "../../components/announcements";
import { CheckResult } from "../../components/checkResult";
import { TextField } from "../../components/field";
import { Page, Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { detectionOf } from "../../labels/detections";
import { qualified } from "../../labels/tables";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";
import { lacksKey } from "../wizard/detection";
import { keyOf, lacksIdentity, nameOf } from "../wizard/draft";
import { checksQuery, sourceTablesQuery } from "../wizard/queries";
import { bodyOf, NO_OPTIONS, type OptionsDraft, wrongPriority } from "./draft";
import { OptionFields } from "./fields";
import { SourceTables } from "./sourceTables";

/** Adds a table of the source to a subscription: which one, with which options, and what the checks find. */
export function AddTablePage({ subscription }: { subscription: string }) {
  const found = useQuery(subscriptionQuery(subscription));
  const [chosen, setChosen] = useState<SourceTable | null>(null);
  return (
    <Page
      key={chosen === null ? "" : keyOf(chosen)}
      title={chosen === null ? `Add a table to ${subscription}` : `Add ${nameOf(chosen)} to ${subscription}`}
      above={
        <>
          <Link href={FLEET}>Fleet</Link> / <Link href={subscriptionAddress(subscription)}>{subscription}</Link>
        </>
      }
    >
      <QueryBoundary query={found}>
        {(of) =>
          chosen === null ? (
            <Choice subscription={of} onChoose={setChosen} />
          ) : (
            <Addition subscription={of} table={chosen} onBack={() => setChosen(null)} />
          )
        }
      </QueryBoundary>
    </Page>
  );
}

function Choice({ subscription, onChoose }: { subscription: Subscription; onChoose: (table: SourceTable) => void }) {
  const tables = useQuery(sourceTablesQuery(subscription.source, subscription.capture.kind));
  const present = useQuery(tablesQuery(subscription.name, false));
  return (
    <>
      {tables.isPending && <p className="soft">The engine asks the source what it has.</p>}
      <QueryBoundary query={tables}>
        {(found) => (
          <QueryBoundary query={present}>
            {(replicated) => <SourceTables subscription={subscription.name} found={found} replicated={replicated} onChoose={onChoose} />}
          </QueryBoundary>
        )}
      </QueryBoundary>
      {!tables.isPending && (
        <div className="form-foot">
          <button type="button" disabled={tables.isFetching} onClick={() => void tables.refetch()}>
            {tables.isFetching ? "Looking …" : "Read the source again"}
          </button>
        </div>
      )}
    </>
  );
}

interface AdditionProps {
  subscription: Subscription;
  table: SourceTable;
  onBack: () => void;
}

function Addition({ subscription, table, onBack }: AdditionProps) {
  const mayAdd = usePermission()("operator");
  // With a capture by queries neither inserts nor other changes are found without a key.
  const byQueries = subscription.capture.kind === "query_diff";
  const [draft, setDraft] = useState<OptionsDraft>({ ...NO_OPTIONS, insertOnly: lacksIdentity(table) && !byQueries });
  const [target, setTarget] = useState({ schema: "", name: "" });
  /** What was checked last; another one after each change. */
  const [checked, setChecked] = useState<TableBody | null>(null);
  const add = useAddition(subscription.name);
  const refused = add.error === null ? null : Problem.from(add.error);
  const edit = (change: () => void): void => {
    change();
    setChecked(null);
    add.reset();
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (wrongPriority(draft.priority) === null) setChecked(bodyOf(table, draft, target));
  };
  return (
    <>
      <form className="options" onSubmit={submit}>
        <fieldset className="options" disabled={!mayAdd}>
          <legend className="unseen">Options of {nameOf(table)}</legend>
          {byQueries && lacksKey(table) && detectionOf(subscription.capture, table)?.key == null && (
            <StatusBadge tone="warn">
              It has no key on the source. First choose the columns that identify a row, in the{" "}
              <Link href={subscriptionPart(subscription.name, "settings")}>settings of the subscription</Link> under Single tables.
            </StatusBadge>
          )}
          {!byQueries && lacksIdentity(table) && (
            <StatusBadge tone="warn">
              The table has no key on the source: only its inserts can be followed, unless it gets a primary key or a REPLICA IDENTITY
              there.
            </StatusBadge>
          )}
          <div className="fields">
            <TextField
              label="Schema on the target"
              hint={`Empty: ${table.schema}`}
              wrong={refused?.at("/target/schema") ?? null}
              value={target.schema}
              maxLength={63}
              onChange={(schema) => edit(() => setTarget({ ...target, schema }))}
            />
            <TextField
              label="Name on the target"
              hint={`Empty: ${table.name}. Place and name on the target cannot be changed later.`}
              wrong={refused?.at("/target/name") ?? null}
              value={target.name}
              maxLength={63}
              onChange={(name) => edit(() => setTarget({ ...target, name }))}
            />
          </div>
          <OptionFields
            draft={draft}
            onChange={(changes) => edit(() => setDraft({ ...draft, ...changes }))}
            columns={table.columns}
            keyed={table.key}
            refused={refused}
          />
        </fieldset>
        <div className="form-foot">
          <button type="submit" className={checked === null ? "primary" : undefined} disabled={!mayAdd}>
            {checked === null ? "Check" : "Check again"}
          </button>
          <button type="button" onClick={onBack}>
            Another table
          </button>
          {checked === null && (
            <span className="soft">
              {mayAdd
                ? "Nothing is added before you have seen what the check finds."
                : "Adding requires an operator's token; yours is read-only."}
            </span>
          )}
        </div>
      </form>
      {checked !== null && <Findings subscription={subscription} body={checked} add={add} refused={refused} />}
    </>
  );
}

function useAddition(subscription: string) {
  const [, navigate] = useLocation();
  return useMutation({
    mutationFn: (body: TableBody) =>
      answer(client.POST("/api/v1/subscriptions/{name}/tables", { params: { path: { name: subscription } }, body })),
    onSuccess: async (table: Table) => {
      navigate(tableAddress(subscription, table.id));
      setTimeout(() => announce(`${qualified(table)}: it was added to ${subscription}.`));
      await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(subscription) });
    },
  });
}

interface FindingsProps {
  subscription: Subscription;
  body: TableBody;
  add: ReturnType<typeof useAddition>;
  refused: Problem | null;
}

/** What the checks of both ends find, and the button that adds the table. */
function Findings({ subscription, body, add, refused }: FindingsProps) {
  const { source, target, capture } = subscription;
  const atSource = useQuery(checksQuery({ connection: source, role: "source", tables: [body], capture }));
  const atTarget = useQuery(checksQuery({ connection: target, role: "target", tables: [body] }));
  const checking = atSource.isFetching || atTarget.isFetching;
  const good = atSource.data?.ok === true && atTarget.data?.ok === true;
  return (
    <>
      <Section title="On the source" aside={subscription.source}>
        <CheckResult query={atSource} />
      </Section>
      <Section title="On the target" aside={subscription.target}>
        <CheckResult query={atTarget} />
      </Section>
      {refused !== null && <ProblemNote error={refused} />}
      <div className="form-foot">
        <button
          type="button"
          className={good ? "primary" : undefined}
          disabled={checking || add.isPending}
          onClick={() => add.mutate(body)}
        >
          {add.isPending ? "Adding …" : good || checking ? "Add the table" : "Add the table nevertheless"}
        </button>
        {!checking && (
          <span className="soft">
            {good
              ? "All its rows are read once from the source; the other tables are not affected."
              : "Until errors are corrected, the table parks."}
          </span>
        )}
      </div>
    </>
  );
}
