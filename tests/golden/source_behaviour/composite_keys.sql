-- replicate lines
-- replicate odd
-- setup
CREATE TABLE lines (line int, note text, order_id bigint, sku text, PRIMARY KEY (order_id, sku, line));
CREATE TABLE odd (v int, "Key B" text, k uuid, PRIMARY KEY (k, "Key B"));
INSERT INTO lines SELECT g % 3, 'n', g / 3, 'sku-' || g % 5 FROM generate_series(1, 300) g;
INSERT INTO odd SELECT g, 'b' || g % 4, md5((g / 4)::text)::uuid FROM generate_series(1, 40) g;
-- workload
UPDATE lines SET note = 'changed' WHERE sku = 'sku-1';

UPDATE lines SET line = line + 10 WHERE order_id < 20;

UPDATE lines SET sku = sku || '/', order_id = -order_id WHERE line = 11;

DELETE FROM lines WHERE order_id = 50;
-- wait
INSERT INTO lines VALUES (1, 'a', 1, 'x' || chr(9) || 'y'), (1, 'b', 1, ''), (1, 'c', 1, ' ');

UPDATE odd SET v = -v;
UPDATE odd SET "Key B" = 'moved' WHERE "Key B" = 'b1';
DELETE FROM odd WHERE "Key B" = 'b2';
