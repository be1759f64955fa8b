-- Constants of many types fill the rows from before.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
-- workload
ALTER TABLE t
  ADD COLUMN small smallint DEFAULT -5,
  ADD COLUMN large bigint DEFAULT 9007199254740993,
  ADD COLUMN real4 real DEFAULT 0.5,
  ADD COLUMN real8 double precision DEFAULT -0.25,
  ADD COLUMN exact numeric DEFAULT 12345678901234567890.123456789,
  ADD COLUMN scaled numeric(10, 3) DEFAULT -0.5,
  ADD COLUMN day date DEFAULT '2020-02-29',
  ADD COLUMN moment timestamptz DEFAULT '2020-02-29 12:34:56.789012+02',
  ADD COLUMN local timestamp DEFAULT '1999-12-31 23:59:59.5',
  ADD COLUMN clock time DEFAULT '23:59:59.123456',
  ADD COLUMN span interval DEFAULT '1 year 2 months -3 days 04:05:06.7',
  ADD COLUMN key uuid DEFAULT '00112233-4455-6677-8899-aabbccddeeff',
  ADD COLUMN bytes bytea DEFAULT '\x00ff5c27',
  ADD COLUMN doc json DEFAULT '{"a": [1, "x\"y", null]}',
  ADD COLUMN docb jsonb DEFAULT '{"b": {"c": "d\\e"}}',
  ADD COLUMN padded char(5) DEFAULT 'ab',
  ADD COLUMN bits bit(4) DEFAULT B'1010',
  ADD COLUMN address inet DEFAULT '10.1.2.3/8',
  ADD COLUMN cash money DEFAULT 12.5,
  ADD COLUMN yes boolean DEFAULT true;
-- wait
INSERT INTO t (id) VALUES (3);
-- expected t: live
--   id | small | large            | real4 | real8 | exact                          | scaled | day        | moment                        | local                 | clock           | span                              | key                                  | bytes      | doc                      | docb                 | padded | bits | address    | cash   | yes
--   1  | -5    | 9007199254740993 | 0.5   | -0.25 | 12345678901234567890.123456789 | -0.500 | 2020-02-29 | 2020-02-29 10:34:56.789012+00 | 1999-12-31 23:59:59.5 | 23:59:59.123456 | 1 year 2 mons -3 days +04:05:06.7 | 00112233-4455-6677-8899-aabbccddeeff | \x00ff5c27 | {"a": [1, "x\"y", null]} | {"b": {"c": "d\\e"}} | ab     | 1010 | 10.1.2.3/8 | $12.50 | t
--   2  | -5    | 9007199254740993 | 0.5   | -0.25 | 12345678901234567890.123456789 | -0.500 | 2020-02-29 | 2020-02-29 10:34:56.789012+00 | 1999-12-31 23:59:59.5 | 23:59:59.123456 | 1 year 2 mons -3 days +04:05:06.7 | 00112233-4455-6677-8899-aabbccddeeff | \x00ff5c27 | {"a": [1, "x\"y", null]} | {"b": {"c": "d\\e"}} | ab     | 1010 | 10.1.2.3/8 | $12.50 | t
--   3  | -5    | 9007199254740993 | 0.5   | -0.25 | 12345678901234567890.123456789 | -0.500 | 2020-02-29 | 2020-02-29 10:34:56.789012+00 | 1999-12-31 23:59:59.5 | 23:59:59.123456 | 1 year 2 mons -3 days +04:05:06.7 | 00112233-4455-6677-8899-aabbccddeeff | \x00ff5c27 | {"a": [1, "x\"y", null]} | {"b": {"c": "d\\e"}} | ab     | 1010 | 10.1.2.3/8 | $12.50 | t
-- history t:
--   column small was added
--   column large was added
--   column real4 was added
--   column real8 was added
--   column exact was added
--   column scaled was added
--   column day was added
--   column moment was added
--   column local was added
--   column clock was added
--   column span was added
--   column key was added
--   column bytes was added
--   column doc was added
--   column docb was added
--   column padded was added
--   column bits was added
--   column address was added
--   column cash was added
--   column yes was added
