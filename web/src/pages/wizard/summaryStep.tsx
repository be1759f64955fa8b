import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useLocation } from "wouter";
import { subscriptionAddress } from "../../addresses";
import { answer, type Connection, client, type SourceTable, type SubscriptionPut } from "../../api/client";
import { keys } from "../../api/queries";
import { announce } from "../../components/announcements";
import { CheckResult } from "../../components/checkResult";
import { Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { capturesOf, isEmbedded, kindLabel, placeOf } from "../../labels/kinds";
import { bytes, some } from "../../labels/numbers";
import { queryClient } from "../../stream/queryClient";
import { useKinds } from "../../useKinds";
import { bodyOf, captureFields, captureOf, chosenOf, type Draft, nameOf, type StepProps, tablesToCheck } from "./draft";
import { checksQuery, collided, sourceTablesQuery } from "./queries";

interface SummaryStepProps extends StepProps {
  source: Connection;
  target: Connection;
}

/** What will be made where, what prevents it, and the button that makes it. */
export function SummaryStep(props: SummaryStepProps) {
  const tables = useQuery(sourceTablesQuery(props.draft.source, props.draft.options.capture));
  return <QueryBoundary query={tables}>{(found) => <Summary {...props} found={found} />}</QueryBoundary>;
}

function Summary({ draft, source, target, found }: SummaryStepProps & { found: SourceTable[] }) {
  const [, navigate] = useLocation();
  const kinds = useKinds();
  const tables = tablesToCheck(draft, found);
  const body = bodyOf(draft, found, captureFields(captureOf(capturesOf(kinds, source), draft.options)));
  const atSource = useQuery(checksQuery({ connection: source.name, role: "source", tables, capture: body.capture }));
  const atTarget = useQuery(checksQuery({ connection: target.name, role: "target", tables }));
  const create = useMutation({
    mutationFn: () => store(draft.name, body),
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: keys.subscriptions });
      navigate(subscriptionAddress(draft.name));
      setTimeout(() => announce(`${draft.name}: the subscription was created.`));
    },
  });
  const checking = atSource.isFetching || atTarget.isFetching;
  const good = atSource.data?.ok === true && atTarget.data?.ok === true;
  return (
    <>
      <Section title="On the source" aside={source.name}>
        <AtSource draft={draft} source={source} found={found} />
        <CheckResult query={atSource} />
      </Section>
      <Section title="On the target" aside={target.name}>
        <AtTarget draft={draft} target={target} found={found} />
        <CheckResult query={atTarget} />
      </Section>
      {create.error !== null && <ProblemNote error={create.error} />}
      <div className="form-foot">
        <button
          type="button"
          className={good ? "primary" : undefined}
          disabled={checking || create.isPending}
          onClick={() => create.mutate()}
        >
          {create.isPending ? "Creating …" : good || checking ? `Create ${draft.name}` : `Create ${draft.name} nevertheless`}
        </button>
        <button
          type="button"
          disabled={checking}
          onClick={() => {
            void atSource.refetch();
            void atTarget.refetch();
          }}
        >
          {checking ? "Checking …" : "Check again"}
        </button>
        {!good && !checking && (
          <span className="soft">Until errors are corrected, the subscription does not start, or its tables park.</span>
        )}
      </div>
    </>
  );
}

/** What is done on the source: how its changes are read, as the chosen capture describes it, and which tables. */
export function AtSource({ draft, source, found }: { draft: Draft; source: Connection; found: SourceTable[] }) {
  const kinds = useKinds();
  const capture = captureOf(capturesOf(kinds, source), draft.options);
  const chosen = chosenOf(draft, found);
  const rows = chosen.reduce((sum, { rows_estimate }) => sum + rows_estimate, 0);
  const size = chosen.reduce((sum, table) => sum + table.bytes, 0);
  return (
    <ul className="does">
      <li>
        {capture?.description} Tables and rows of {kindLabel(kinds, source.kind)} at <code>{placeOf(source)}</code> are not changed.
      </li>
      <li>
        {some(chosen.length, "table")} {chosen.length === 1 ? "is" : "are"} read once, about {some(rows, "row")} and {bytes(size)}; from
        then on only changes are read.
      </li>
      {draft.patterns.length > 0 && (
        <li>
          Tables that are created later and match <code>{draft.patterns.map(({ schema, name }) => `${schema}.${name}`).join(", ")}</code>{" "}
          are included.
        </li>
      )}
    </ul>
  );
}

function AtTarget({ draft, target, found }: { draft: Draft; target: Connection; found: SourceTable[] }) {
  const kinds = useKinds();
  const { targetSchema } = draft.options;
  const names = chosenOf(draft, found).map((table) =>
    nameOf({ schema: targetSchema === "" ? table.schema : targetSchema, name: table.name }),
  );
  return (
    <ul className="does">
      <li>
        {isEmbedded(kinds, target) ? (
          <>
            The file <code>{placeOf(target)}</code> is created if missing. While the engine has it open, other programs query it through
            Penstock.
          </>
        ) : (
          <>
            Schemas and tables are made in {kindLabel(kinds, target.kind)} at <code>{placeOf(target)}</code>.
          </>
        )}
      </li>
      <li>
        <Many number={names.length} names={names} />
      </li>
      <li>
        A schema <code>penstock</code> contains their progress.
      </li>
    </ul>
  );
}

function Many({ number, names }: { number: number; names: string[] }) {
  const list: ReactNode = <code>{names.join(", ")}</code>;
  if (number <= 12)
    return (
      <>
        {some(number, "table")}: {list}
      </>
    );
  return (
    <details>
      <summary>{some(number, "table")}</summary>
      {list}
    </details>
  );
}

async function store(name: string, body: SubscriptionPut): Promise<void> {
  try {
    await answer(client.PUT("/api/v1/subscriptions/{name}", { params: { path: { name }, header: { "if-none-match": "*" } }, body }));
  } catch (error) {
    throw collided(error, `A subscription named ${name} already exists.`, "Go back to the first step, and choose another name.");
  }
}
