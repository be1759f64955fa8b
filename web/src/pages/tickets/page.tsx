import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { placeTicket, type Ticket, ticketsQuery } from "../../api/tickets";
import { announce } from "../../components/announcements";
import { Page, Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { SubscriptionChoice } from "../../components/subscriptionChoice";
import { usePermission } from "../../usePermission";
import { TicketLedger } from "./ledger";
import { OverTime } from "./overTime";
import { StagePatterns } from "./stages";
import { Throughput } from "./throughput";

/** Markers in the source's log, timed at each stage on their way to the target. */
export function TicketsPage() {
  return (
    <Page title="Tickets">
      <StagePatterns />
      <SubscriptionChoice>{({ name }) => <Tickets key={name} subscription={name} />}</SubscriptionChoice>
    </Page>
  );
}

function Tickets({ subscription }: { subscription: string }) {
  const tickets = useInfiniteQuery(ticketsQuery(subscription));
  const may = usePermission();
  return (
    <>
      {may("operator") && (
        <Section title="New ticket">
          <PlaceForm subscription={subscription} />
        </Section>
      )}
      <QueryBoundary query={tickets}>
        {({ pages }) => {
          const items = pages.flatMap((page) => page.items);
          return (
            <>
              <Section title="Tickets" aside="The newest first">
                <TicketLedger tickets={items} />
                {tickets.hasNextPage && (
                  <p className="below">
                    <button type="button" onClick={() => !tickets.isFetchingNextPage && void tickets.fetchNextPage()}>
                      {tickets.isFetchingNextPage ? "Reading …" : "Show older ones"}
                    </button>
                  </p>
                )}
              </Section>
              <Compared subscription={subscription} applied={items.filter(({ state }) => state === "applied")} />
            </>
          );
        }}
      </QueryBoundary>
    </>
  );
}

const Compared = ({ subscription, applied }: { subscription: string; applied: Ticket[] }) => (
  <>
    <Section title="Over time" aside="Time at each stage, ticket by ticket">
      <OverTime tickets={applied} />
    </Section>
    <Section title="Throughput" aside="Between two tickets">
      <Throughput subscription={subscription} tickets={applied} />
    </Section>
  </>
);

function PlaceForm({ subscription }: { subscription: string }) {
  const [called, setCalled] = useState("");
  const id = useId();
  const kept = useQueryClient();
  const work = useMutation({
    mutationFn: () => placeTicket(subscription, called.trim()),
    onSuccess: async (ticket) => {
      announce(`${ticket.name ?? ticket.id}: the ticket was placed.`);
      setCalled("");
      await kept.invalidateQueries({ queryKey: ticketsQuery(subscription).queryKey });
    },
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!work.isPending) work.mutate();
  };
  return (
    <>
      <p className="prose">
        A ticket is a marker in the source&apos;s log. It changes no table, passes through the same stages as every change, and shows the
        duration of each stage.
      </p>
      <form className="place" onSubmit={submit}>
        <div className="typed">
          <label htmlFor={id}>Name (optional)</label>
          <input id={id} value={called} maxLength={100} autoComplete="off" onChange={(event) => setCalled(event.target.value)} />
        </div>
        <button type="submit" className="primary" aria-disabled={work.isPending}>
          {work.isPending ? "Placing …" : "Place a ticket"}
        </button>
      </form>
      {work.error !== null && <ProblemNote error={work.error} />}
    </>
  );
}
