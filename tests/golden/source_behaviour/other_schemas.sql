-- replicate sb_sales.orders
-- replicate sb_archive.orders
-- replicate "sb Weird.Schema/é"."orders"
-- setup
CREATE SCHEMA sb_sales;
CREATE SCHEMA sb_archive;
CREATE SCHEMA "sb Weird.Schema/é";
CREATE TABLE sb_sales.orders (id int PRIMARY KEY, v text);
CREATE TABLE sb_archive.orders (id int PRIMARY KEY, v text, extra int);
CREATE TABLE "sb Weird.Schema/é"."orders" (id int PRIMARY KEY, v text);
INSERT INTO sb_sales.orders VALUES (1, 'sales');
INSERT INTO sb_archive.orders VALUES (1, 'archive', 1);
INSERT INTO "sb Weird.Schema/é".orders VALUES (1, 'weird');
-- workload
WITH gone AS (DELETE FROM sb_sales.orders WHERE id = 1 RETURNING *)
INSERT INTO sb_archive.orders SELECT id + 100, v, 7 FROM gone;

INSERT INTO sb_sales.orders VALUES (2, 'two');
UPDATE "sb Weird.Schema/é".orders SET v = 'changed';
