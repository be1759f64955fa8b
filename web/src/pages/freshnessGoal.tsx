import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { subscriptionPart, tableAddress } from "../addresses";
import { freshnessGoalsQuery } from "../api/freshness";
import { Fact, Facts } from "../components/facts";
import { Section } from "../components/page";
import { QueryBoundary } from "../components/queryBoundary";
import { StatusBadge } from "../components/statusBadge";
import { Ago, Moment } from "../components/time";
import { UsageBar } from "../components/usageBar";
import { complianceWords, type FreshnessGoal, goalState, goalWords, leftWords, usedShare } from "../labels/goals";
import { count, seconds } from "../labels/numbers";

/** From this share of the error budget on, little is left. */
const WARN_AT = 0.75;

/** The freshness goal that applies to a table (null: of the subscription), how far it is met, and its error budget. */
export function FreshnessGoalSection({ subscription, table }: { subscription: string; table: string | null }) {
  const goals = useQuery(freshnessGoalsQuery(subscription, table));
  return (
    <Section title="Freshness goal" aside={<Link href={subscriptionPart(subscription, "settings")}>Settings</Link>}>
      <QueryBoundary query={goals}>
        {({ items }) => {
          const applies = items.find((item) => table !== null || item.table === null);
          return (
            <>
              {applies === undefined ? <p className="soft">None is set.</p> : <Goal found={applies} ofTable={table !== null} />}
              {table === null && <TablesWithGoals subscription={subscription} items={items} />}
            </>
          );
        }}
      </QueryBoundary>
    </Section>
  );
}

function Goal({ found, ofTable }: { found: FreshnessGoal; ofTable: boolean }) {
  const { tone, word } = goalState(found);
  const { unknown, excluded } = found.shares_seconds;
  return (
    <Facts>
      <Fact name="Goal" note={ofTable && found.table === null ? "the subscription's" : undefined}>
        {goalWords(found)}
      </Fact>
      <Fact name="State">
        <StatusBadge tone={tone}>{word}</StatusBadge>
      </Fact>
      <Fact
        name="Met"
        note={
          <>
            of the time since <Moment at={found.measured_since} />
          </>
        }
      >
        {complianceWords(found)}
      </Fact>
      <Fact name="Error budget left" note={<UsageBar share={usedShare(found)} warnAt={WARN_AT} />}>
        {leftWords(found)}
      </Fact>
      <Fact name="Burn rate" note="last hour, last 6 hours; 1 uses the budget up in one window">
        {`${found.burn_rate.last_hour.toFixed(1)}, ${found.burn_rate.last_6_hours.toFixed(1)}`}
      </Fact>
      {found.late_since !== null && (
        <Fact name="Late since">
          <Ago at={found.late_since} />
        </Fact>
      )}
      {found.worst !== null && (
        <Fact
          name="Longest late time"
          note={
            <>
              from <Moment at={found.worst.begin} />
            </>
          }
        >
          {seconds(found.worst.seconds)}
        </Fact>
      )}
      {unknown > 0 && (
        <Fact name="Unknown" note="the server did not run; uses the budget">
          {seconds(unknown)}
        </Fact>
      )}
      {excluded > 0 && <Fact name="Does not count">{seconds(excluded)}</Fact>}
    </Facts>
  );
}

/** Tables with goals of their own, in a word each; those that need a look come first. */
function TablesWithGoals({ subscription, items }: { subscription: string; items: FreshnessGoal[] }) {
  const own = items.filter((item) => item.table !== null);
  if (own.length === 0) return null;
  const missed = own.filter((item) => goalState(item).tone !== "good");
  return (
    <p className="soft">
      {`${count(own.length)} of its tables ${own.length === 1 ? "has its" : "have their"} own goal`}
      {missed.length === 0 ? "." : "; to be looked at: "}
      {missed.slice(0, 5).map((item, number) => (
        <span key={item.table?.id}>
          {number > 0 && ", "}
          <Link href={tableAddress(subscription, item.table?.id ?? "")}>{`${item.table?.schema}.${item.table?.name}`}</Link>{" "}
          {`(${goalState(item).word})`}
        </span>
      ))}
      {missed.length > 5 && ` and ${count(missed.length - 5)} more`}
    </p>
  );
}
