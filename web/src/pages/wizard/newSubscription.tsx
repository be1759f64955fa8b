import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { FLEET, NEW_SUBSCRIPTION } from "../../addresses";
import { connectionsQuery, subscriptionsQuery } from "../../api/queries";
import { Page } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { DEFAULTS, type Draft, type StepProps } from "./draft";
import { EndsStep } from "./endsStep";
import { OptionsStep } from "./optionsStep";
import { sampleQuery } from "./queries";
import { SummaryStep } from "./summaryStep";
import { TablesStep } from "./tablesStep";

const STEPS = [
  { name: "ends", title: "Source and target" },
  { name: "tables", title: "Tables" },
  { name: "options", title: "Options" },
  { name: "summary", title: "Check and create" },
] as const;
type Step = (typeof STEPS)[number]["name"];

/** Puts a subscription together, step by step; nothing is made before the last one. */
export function NewSubscriptionPage() {
  const search = new URLSearchParams(useSearch());
  const [, navigate] = useLocation();
  const connections = useQuery(connectionsQuery());
  const subscriptions = useQuery(subscriptionsQuery());
  const sample = useQuery(sampleQuery());
  const [draft, setDraft] = useState<Draft>(() => emptyDraft(search.get("source") ?? ""));
  const change = (changes: Partial<Draft>): void => setDraft((before) => ({ ...before, ...changes }));
  const reached = reachedBy(draft);
  const wanted = STEPS.findIndex(({ name }) => name === search.get("step"));
  const at = Math.min(Math.max(0, wanted), reached);
  const next = STEPS[at + 1];
  const props: StepProps = {
    draft,
    onChange: change,
    onNext: () => {
      if (next !== undefined) navigate(stepAddress(next.name));
      scrollTo(0, 0);
    },
  };
  return (
    <Page title="New subscription" above={<Link href={FLEET}>Fleet</Link>}>
      <nav className="steps" aria-label="Steps">
        <ol>
          {STEPS.map(({ name, title }, number) => (
            <li key={name}>
              {number <= reached ? (
                <Link href={stepAddress(name)} aria-current={number === at ? "step" : undefined}>
                  {title}
                </Link>
              ) : (
                <span className="soft">{title}</span>
              )}
            </li>
          ))}
        </ol>
      </nav>
      <QueryBoundary query={connections}>
        {(items) => {
          const ends = { source: items.find(({ name }) => name === draft.source), target: items.find(({ name }) => name === draft.target) };
          if (at === 0 || ends.source === undefined || ends.target === undefined) {
            return <EndsStep {...props} connections={items} subscriptions={subscriptions.data ?? []} sample={sample.data ?? null} />;
          }
          if (at === 1) return <TablesStep {...props} source={ends.source} all={draft.source === sample.data?.connection} />;
          if (at === 2) return <OptionsStep {...props} source={ends.source} />;
          return <SummaryStep {...props} source={ends.source} target={ends.target} />;
        }}
      </QueryBoundary>
    </Page>
  );
}

const stepAddress = (step: Step): string => `${NEW_SUBSCRIPTION}?step=${step}`;

const emptyDraft = (source: string): Draft => ({
  name: source,
  source,
  target: "",
  tables: new Set(),
  insertOnly: new Set(),
  patterns: [],
  detections: {},
  options: DEFAULTS,
});

/** Number of the last step that what was chosen so far lets one see. */
function reachedBy({ name, source, target, tables, patterns }: Draft): number {
  if (name === "" || source === "" || target === "") return 0;
  return tables.size === 0 && patterns.length === 0 ? 1 : STEPS.length - 1;
}
