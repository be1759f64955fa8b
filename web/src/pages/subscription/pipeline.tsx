import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { subscriptionPart } from "../../addresses";
import type { Subscription } from "../../api/client";
import { historyQuery } from "../../api/history";
import { atServer } from "../../clock";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { courseOf, type Stage } from "../../labels/stages";

const HOURS = 0.1;

/** The way of a change from the source to the target, stage by stage, with the one that the others wait for. */
export function Pipeline({ subscription }: { subscription: Subscription }) {
  const history = useQuery(historyQuery(subscription.name, HOURS));
  return (
    <QueryBoundary query={history}>
      {({ points }) => {
        const { stages, bottleneck, why } = courseOf(subscription, points, atServer(history.dataUpdatedAt));
        return (
          <>
            <ol className="stages">
              {stages.map((stage, number) => (
                <StageItem key={stage.name} stage={stage} bottleneck={number === bottleneck} />
              ))}
            </ol>
            <p className="below">
              {bottleneck === null ? why : `The bottleneck is “${stages[bottleneck]?.name ?? ""}”. ${why}`} What is “–” is not measured for
              that stage alone. <Link href={subscriptionPart(subscription.name, "charts")}>Over time</Link>
            </p>
          </>
        );
      }}
    </QueryBoundary>
  );
}

function StageItem({ stage, bottleneck }: { stage: Stage; bottleneck: boolean }) {
  return (
    <li className={bottleneck ? "bottleneck" : undefined}>
      <h3>{stage.name}</h3>
      {bottleneck && (
        <p>
          <StatusBadge tone="warn">bottleneck</StatusBadge>
        </p>
      )}
      <p className="soft">{stage.means}</p>
      <dl>
        <Figure name="Rate" value={stage.rate} />
        <Figure name="Backlog" value={stage.backlog} />
        <Figure name="Time" value={stage.time} means={stage.timeMeans} />
      </dl>
    </li>
  );
}

function Figure({ name, value, means = null }: { name: string; value: string | null; means?: string | null }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value ?? <span className="soft">–</span>}
        {value !== null && means !== null && <small>{means}</small>}
      </dd>
    </div>
  );
}
