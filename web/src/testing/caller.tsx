import { QueryClient, QueryClientProvider, type QueryKey } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { keys } from "../api/queries";

/** What a test renders, as someone with this role sees it; it reads nothing from a server. `known`: what it has read, by key. */
export function As({ role, known = [], children }: { role: string; known?: [QueryKey, unknown][]; children: ReactNode }) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, refetchInterval: false, retry: false } } });
  client.setQueryData(keys.caller, { role });
  for (const [key, data] of known) client.setQueryData(key, data);
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}
