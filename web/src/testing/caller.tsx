import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { keys } from "../api/queries";

/** What a test renders, as someone with this role sees it; it reads nothing from a server. */
export function As({ role, children }: { role: string; children: ReactNode }) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, refetchInterval: false } } });
  client.setQueryData(keys.caller, { role });
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}
