import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import { keys } from "./queries";
import type { components } from "./schema";

export type Ticket = components["schemas"]["TicketView"];
export type Throughput = components["schemas"]["ThroughputView"];

const AT_ONCE = 50;
/** Events of the stream come a second apart; a ticket often takes less. */
const WHILE_UNDER_WAY_MS = 500;
/** One that waits for its subscription may do so for days. */
const WHILE_PENDING_MS = 2_000;

export const isOpen = ({ state }: Ticket): boolean => state === "pending" || state === "under_way";

function readAgainMs(tickets: Ticket[]): number | null {
  if (tickets.some(({ state }) => state === "under_way")) return WHILE_UNDER_WAY_MS;
  return tickets.some(isOpen) ? WHILE_PENDING_MS : null;
}

const OTHERWISE_MS = 15_000;

/** Tickets of a subscription, the newest first, page after page. */
export const ticketsQuery = (name: string) =>
  infiniteQueryOptions({
    queryKey: [...keys.ofSubscription(name), "tickets"],
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      answer(
        client.GET("/api/v1/subscriptions/{name}/tickets", {
          params: { path: { name }, query: { page_size: AT_ONCE, ...(pageParam === null ? {} : { page_token: pageParam }) } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next_page_token ?? null,
    refetchInterval: ({ state }) => readAgainMs(state.data?.pages[0]?.items ?? []) ?? OTHERWISE_MS,
  });

/** A ticket, with what was replicated from `since` on. */
export const throughputQuery = (name: string, ticket_id: string, since: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "ticket", ticket_id, since],
    queryFn: ({ signal }) =>
      answer(
        client.GET("/api/v1/subscriptions/{name}/tickets/{ticket_id}", {
          params: { path: { name, ticket_id }, query: { since } },
          signal,
        }),
      ),
    refetchInterval: ({ state }) => readAgainMs(state.data === undefined ? [] : [state.data]) ?? OTHERWISE_MS,
  });

/** Have one placed; an empty `called` gives it no name. */
export const placeTicket = (name: string, called: string): Promise<Ticket> =>
  answer(
    client.POST("/api/v1/subscriptions/{name}/tickets", {
      params: { path: { name } },
      body: called === "" ? {} : { name: called },
    }),
  );
