import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { eventPageQuery, SEVERITIES, type Severity } from "../../api/history";
import { EventList } from "../../components/events";
import { OlderNewer } from "../../components/olderNewer";
import { QueryBoundary } from "../../components/queryBoundary";
import { type Filters, useFilters } from "../../filters";
import { SubscriptionFrame } from "./frame";

const WORDS: Record<Severity, string> = { error: "errors", warning: "warnings", info: "information" };

/** All that happened to a subscription, of one severity or of all. */
export function SubscriptionEventsPage({ name }: { name: string }) {
  const filters = useFilters();
  const severity = SEVERITIES.find((one) => one === filters.get("severity"));
  const events = useQuery(eventPageQuery(name, { severity }, filters.get("from")));
  return (
    <SubscriptionFrame name={name} part="events">
      {() => (
        <>
          <Which filters={filters} chosen={severity} />
          <QueryBoundary query={events}>
            {({ items, next_page_token }) => (
              <>
                {items.length === 0 && severity !== undefined ? (
                  <p className="soft">No {WORDS[severity]}.</p>
                ) : (
                  <EventList events={items} here="subscription" />
                )}
                <OlderNewer filters={filters} next={next_page_token} noun="events" />
              </>
            )}
          </QueryBoundary>
        </>
      )}
    </SubscriptionFrame>
  );
}

function Which({ filters, chosen }: { filters: Filters; chosen: Severity | undefined }) {
  const address = (severity: string | null): string => filters.address({ severity, from: null });
  return (
    <nav className="choices" aria-label="Which events are shown">
      <Link href={address(null)} aria-current={chosen === undefined ? "true" : undefined} replace>
        all
      </Link>
      {SEVERITIES.map((severity) => (
        <Link key={severity} href={address(severity)} aria-current={chosen === severity ? "true" : undefined} replace>
          {WORDS[severity]}
        </Link>
      ))}
    </nav>
  );
}
