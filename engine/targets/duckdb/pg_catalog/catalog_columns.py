"""The relations of the schema pg_catalog in PostgreSQL 15, with their OIDs and columns."""

from __future__ import annotations

DEFINITIONS = """\
pg_aggregate 2600 r aggfnoid:regproc! aggkind:char! aggnumdirectargs:int2! aggtransfn:regproc! aggfinalfn:regproc! aggcombinefn:regproc!
 aggserialfn:regproc! aggdeserialfn:regproc! aggmtransfn:regproc! aggminvtransfn:regproc! aggmfinalfn:regproc! aggfinalextra:bool!
 aggmfinalextra:bool! aggfinalmodify:char! aggmfinalmodify:char! aggsortop! aggtranstype! aggtransspace:int4! aggmtranstype!
 aggmtransspace:int4! agginitval:text aggminitval:text
pg_am 2601 r oid! amname:name! amhandler:regproc! amtype:char!
pg_amop 2602 r oid! amopfamily! amoplefttype! amoprighttype! amopstrategy:int2! amoppurpose:char! amopopr! amopmethod! amopsortfamily!
pg_amproc 2603 r oid! amprocfamily! amproclefttype! amprocrighttype! amprocnum:int2! amproc:regproc!
pg_attrdef 2604 r oid! adrelid! adnum:int2! adbin:pg_node_tree!
pg_attribute 1249 r attrelid! attname:name! atttypid! attstattarget:int4! attlen:int2! attnum:int2! attndims:int4! attcacheoff:int4!
 atttypmod:int4! attbyval:bool! attalign:char! attstorage:char! attcompression:char! attnotnull:bool! atthasdef:bool!
 atthasmissing:bool! attidentity:char! attgenerated:char! attisdropped:bool! attislocal:bool! attinhcount:int4! attcollation!
 attacl:_aclitem attoptions:_text attfdwoptions:_text attmissingval:anyarray
pg_auth_members 1261 r roleid! member! grantor! admin_option:bool!
pg_authid 1260 r oid! rolname:name! rolsuper:bool! rolinherit:bool! rolcreaterole:bool! rolcreatedb:bool! rolcanlogin:bool!
 rolreplication:bool! rolbypassrls:bool! rolconnlimit:int4! rolpassword:text rolvaliduntil:timestamptz
pg_available_extension_versions 12085 v name:name version:text installed:bool superuser:bool trusted:bool relocatable:bool schema:name
 requires:_name comment:text
pg_available_extensions 12081 v name:name default_version:text installed_version:text comment:text
pg_backend_memory_contexts 12138 v name:text ident:text parent:text level:int4 total_bytes:int8 total_nblocks:int8 free_bytes:int8
 free_chunks:int8 used_bytes:int8
pg_cast 2605 r oid! castsource! casttarget! castfunc! castcontext:char! castmethod:char!
pg_class 1259 r oid! relname:name! relnamespace! reltype! reloftype! relowner! relam! relfilenode! reltablespace! relpages:int4!
 reltuples:float4! relallvisible:int4! reltoastrelid! relhasindex:bool! relisshared:bool! relpersistence:char! relkind:char!
 relnatts:int2! relchecks:int2! relhasrules:bool! relhastriggers:bool! relhassubclass:bool! relrowsecurity:bool!
 relforcerowsecurity:bool! relispopulated:bool! relreplident:char! relispartition:bool! relrewrite! relfrozenxid:xid! relminmxid:xid!
 relacl:_aclitem reloptions:_text relpartbound:pg_node_tree
pg_collation 3456 r oid! collname:name! collnamespace! collowner! collprovider:char! collisdeterministic:bool! collencoding:int4!
 collcollate:text collctype:text colliculocale:text collversion:text
pg_config 12130 v name:text setting:text
pg_constraint 2606 r oid! conname:name! connamespace! contype:char! condeferrable:bool! condeferred:bool! convalidated:bool! conrelid!
 contypid! conindid! conparentid! confrelid! confupdtype:char! confdeltype:char! confmatchtype:char! conislocal:bool! coninhcount:int4!
 connoinherit:bool! conkey:_int2 confkey:_int2 conpfeqop:_oid conppeqop:_oid conffeqop:_oid confdelsetcols:_int2 conexclop:_oid
 conbin:pg_node_tree
pg_conversion 2607 r oid! conname:name! connamespace! conowner! conforencoding:int4! contoencoding:int4! conproc:regproc!
 condefault:bool!
pg_cursors 12077 v name:text statement:text is_holdable:bool is_binary:bool is_scrollable:bool creation_time:timestamptz
pg_database 1262 r oid! datname:name! datdba! encoding:int4! datlocprovider:char! datistemplate:bool! datallowconn:bool!
 datconnlimit:int4! datfrozenxid:xid! datminmxid:xid! dattablespace! datcollate:text! datctype:text! daticulocale:text
 datcollversion:text datacl:_aclitem
pg_db_role_setting 2964 r setdatabase! setrole! setconfig:_text
pg_default_acl 826 r oid! defaclrole! defaclnamespace! defaclobjtype:char! defaclacl:_aclitem!
pg_depend 2608 r classid! objid! objsubid:int4! refclassid! refobjid! refobjsubid:int4! deptype:char!
pg_description 2609 r objoid! classoid! objsubid:int4! description:text!
pg_enum 3501 r oid! enumtypid! enumsortorder:float4! enumlabel:name!
pg_event_trigger 3466 r oid! evtname:name! evtevent:name! evtowner! evtfoid! evtenabled:char! evttags:_text
pg_extension 3079 r oid! extname:name! extowner! extnamespace! extrelocatable:bool! extversion:text! extconfig:_oid extcondition:_text
pg_file_settings 12110 v sourcefile:text sourceline:int4 seqno:int4 name:text setting:text applied:bool error:text
pg_foreign_data_wrapper 2328 r oid! fdwname:name! fdwowner! fdwhandler! fdwvalidator! fdwacl:_aclitem fdwoptions:_text
pg_foreign_server 1417 r oid! srvname:name! srvowner! srvfdw! srvtype:text srvversion:text srvacl:_aclitem srvoptions:_text
pg_foreign_table 3118 r ftrelid! ftserver! ftoptions:_text
pg_group 12010 v groname:name grosysid grolist:_oid
pg_hba_file_rules 12114 v line_number:int4 type:text database:_text user_name:_text address:text netmask:text auth_method:text
 options:_text error:text
pg_ident_file_mappings 12118 v line_number:int4 map_name:text sys_name:text pg_username:text error:text
pg_index 2610 r indexrelid! indrelid! indnatts:int2! indnkeyatts:int2! indisunique:bool! indnullsnotdistinct:bool! indisprimary:bool!
 indisexclusion:bool! indimmediate:bool! indisclustered:bool! indisvalid:bool! indcheckxmin:bool! indisready:bool! indislive:bool!
 indisreplident:bool! indkey:int2vector! indcollation:oidvector! indclass:oidvector! indoption:int2vector! indexprs:pg_node_tree
 indpred:pg_node_tree
pg_indexes 12043 v schemaname:name tablename:name indexname:name tablespace:name indexdef:text
pg_inherits 2611 r inhrelid! inhparent! inhseqno:int4! inhdetachpending:bool!
pg_init_privs 3394 r objoid! classoid! objsubid:int4! privtype:char! initprivs:_aclitem!
pg_language 2612 r oid! lanname:name! lanowner! lanispl:bool! lanpltrusted:bool! lanplcallfoid! laninline! lanvalidator! lanacl:_aclitem
pg_largeobject 2613 r loid! pageno:int4! data:bytea!
pg_largeobject_metadata 2995 r oid! lomowner! lomacl:_aclitem
pg_locks 12073 v locktype:text database relation page:int4 tuple:int2 virtualxid:text transactionid:xid classid objid objsubid:int2
 virtualtransaction:text pid:int4 mode:text granted:bool fastpath:bool waitstart:timestamptz
pg_matviews 12038 v schemaname:name matviewname:name matviewowner:name tablespace:name hasindexes:bool ispopulated:bool definition:text
pg_namespace 2615 r oid! nspname:name! nspowner! nspacl:_aclitem
pg_opclass 2616 r oid! opcmethod! opcname:name! opcnamespace! opcowner! opcfamily! opcintype! opcdefault:bool! opckeytype!
pg_operator 2617 r oid! oprname:name! oprnamespace! oprowner! oprkind:char! oprcanmerge:bool! oprcanhash:bool! oprleft! oprright!
 oprresult! oprcom! oprnegate! oprcode:regproc! oprrest:regproc! oprjoin:regproc!
pg_opfamily 2753 r oid! opfmethod! opfname:name! opfnamespace! opfowner!
pg_parameter_acl 6243 r oid! parname:text! paracl:_aclitem
pg_partitioned_table 3350 r partrelid! partstrat:char! partnatts:int2! partdefid! partattrs:int2vector! partclass:oidvector!
 partcollation:oidvector! partexprs:pg_node_tree
pg_policies 12018 v schemaname:name tablename:name policyname:name permissive:text roles:_name cmd:text qual:text with_check:text
pg_policy 3256 r oid! polname:name! polrelid! polcmd:char! polpermissive:bool! polroles:_oid! polqual:pg_node_tree
 polwithcheck:pg_node_tree
pg_prepared_statements 12095 v name:text statement:text prepare_time:timestamptz parameter_types:_regtype from_sql:bool
 generic_plans:int8 custom_plans:int8
pg_prepared_xacts 12090 v transaction:xid gid:text prepared:timestamptz owner:name database:name
pg_proc 1255 r oid! proname:name! pronamespace! proowner! prolang! procost:float4! prorows:float4! provariadic! prosupport:regproc!
 prokind:char! prosecdef:bool! proleakproof:bool! proisstrict:bool! proretset:bool! provolatile:char! proparallel:char! pronargs:int2!
 pronargdefaults:int2! prorettype! proargtypes:oidvector! proallargtypes:_oid proargmodes:_char proargnames:_text
 proargdefaults:pg_node_tree protrftypes:_oid prosrc:text! probin:text prosqlbody:pg_node_tree proconfig:_text proacl:_aclitem
pg_publication 6104 r oid! pubname:name! pubowner! puballtables:bool! pubinsert:bool! pubupdate:bool! pubdelete:bool! pubtruncate:bool!
 pubviaroot:bool!
pg_publication_namespace 6237 r oid! pnpubid! pnnspid!
pg_publication_rel 6106 r oid! prpubid! prrelid! prqual:pg_node_tree prattrs:int2vector
pg_publication_tables 12068 v pubname:name schemaname:name tablename:name attnames:_name rowfilter:text
pg_range 3541 r rngtypid! rngsubtype! rngmultitypid! rngcollation! rngsubopc! rngcanonical:regproc! rngsubdiff:regproc!
pg_replication_origin 6000 r roident! roname:text!
pg_replication_origin_status 12332 v local_id external_id:text remote_lsn:pg_lsn local_lsn:pg_lsn
pg_replication_slots 12257 v slot_name:name plugin:name slot_type:text datoid database:name temporary:bool active:bool active_pid:int4
 xmin:xid catalog_xmin:xid restart_lsn:pg_lsn confirmed_flush_lsn:pg_lsn wal_status:text safe_wal_size:int8 two_phase:bool
pg_rewrite 2618 r oid! rulename:name! ev_class! ev_type:char! ev_enabled:char! is_instead:bool! ev_qual:pg_node_tree!
 ev_action:pg_node_tree!
pg_roles 12000 v rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool rolcanlogin:bool rolreplication:bool
 rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz rolbypassrls:bool rolconfig:_text oid
pg_rules 12023 v schemaname:name tablename:name rulename:name definition:text
pg_seclabel 3596 r objoid! classoid! objsubid:int4! provider:text! label:text!
pg_seclabels 12099 v objoid classoid objsubid:int4 objtype:text objnamespace objname:text provider:text label:text
pg_sequence 2224 r seqrelid! seqtypid! seqstart:int8! seqincrement:int8! seqmax:int8! seqmin:int8! seqcache:int8! seqcycle:bool!
pg_sequences 12048 v schemaname:name sequencename:name sequenceowner:name data_type:regtype start_value:int8 min_value:int8
 max_value:int8 increment_by:int8 cycle:bool cache_size:int8 last_value:int8
pg_settings 12104 v name:text setting:text unit:text category:text short_desc:text extra_desc:text context:text vartype:text source:text
 min_val:text max_val:text enumvals:_text boot_val:text reset_val:text sourcefile:text sourceline:int4 pending_restart:bool
pg_shadow 12005 v usename:name usesysid usecreatedb:bool usesuper:bool userepl:bool usebypassrls:bool passwd:text valuntil:timestamptz
 useconfig:_text
pg_shdepend 1214 r dbid! classid! objid! objsubid:int4! refclassid! refobjid! deptype:char!
pg_shdescription 2396 r objoid! classoid! description:text!
pg_shmem_allocations 12134 v name:text off:int8 size:int8 allocated_size:int8
pg_shseclabel 3592 r objoid! classoid! provider:text! label:text!
pg_stat_activity 12222 v datid datname:name pid:int4 leader_pid:int4 usesysid usename:name application_name:text client_addr:inet
 client_hostname:text client_port:int4 backend_start:timestamptz xact_start:timestamptz query_start:timestamptz state_change:timestamptz
 wait_event_type:text wait_event:text state:text backend_xid:xid backend_xmin:xid query_id:int8 query:text backend_type:text
pg_stat_all_indexes 12183 v relid indexrelid schemaname:name relname:name indexrelname:name idx_scan:int8 idx_tup_read:int8
 idx_tup_fetch:int8
pg_stat_all_tables 12142 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8
 n_ins_since_vacuum:int8 last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz last_autoanalyze:timestamptz
 vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 autoanalyze_count:int8
pg_stat_archiver 12285 v archived_count:int8 last_archived_wal:text last_archived_time:timestamptz failed_count:int8
 last_failed_wal:text last_failed_time:timestamptz stats_reset:timestamptz
pg_stat_bgwriter 12289 v checkpoints_timed:int8 checkpoints_req:int8 checkpoint_write_time:float8 checkpoint_sync_time:float8
 buffers_checkpoint:int8 buffers_clean:int8 maxwritten_clean:int8 buffers_backend:int8 buffers_backend_fsync:int8 buffers_alloc:int8
 stats_reset:timestamptz
pg_stat_database 12266 v datid datname:name numbackends:int4 xact_commit:int8 xact_rollback:int8 blks_read:int8 blks_hit:int8
 tup_returned:int8 tup_fetched:int8 tup_inserted:int8 tup_updated:int8 tup_deleted:int8 conflicts:int8 temp_files:int8 temp_bytes:int8
 deadlocks:int8 checksum_failures:int8 checksum_last_failure:timestamptz blk_read_time:float8 blk_write_time:float8 session_time:float8
 active_time:float8 idle_in_transaction_time:float8 sessions:int8 sessions_abandoned:int8 sessions_fatal:int8 sessions_killed:int8
 stats_reset:timestamptz
pg_stat_database_conflicts 12271 v datid datname:name confl_tablespace:int8 confl_lock:int8 confl_snapshot:int8 confl_bufferpin:int8
 confl_deadlock:int8
pg_stat_gssapi 12253 v pid:int4 gss_authenticated:bool principal:text encrypted:bool
pg_stat_progress_analyze 12297 v pid:int4 datid datname:name relid phase:text sample_blks_total:int8 sample_blks_scanned:int8
 ext_stats_total:int8 ext_stats_computed:int8 child_tables_total:int8 child_tables_done:int8 current_child_table_relid
pg_stat_progress_basebackup 12317 v pid:int4 phase:text backup_total:int8 backup_streamed:int8 tablespaces_total:int8
 tablespaces_streamed:int8
pg_stat_progress_cluster 12307 v pid:int4 datid datname:name relid command:text phase:text cluster_index_relid heap_tuples_scanned:int8
 heap_tuples_written:int8 heap_blks_total:int8 heap_blks_scanned:int8 index_rebuild_count:int8
pg_stat_progress_copy 12322 v pid:int4 datid datname:name relid command:text type:text bytes_processed:int8 bytes_total:int8
 tuples_processed:int8 tuples_excluded:int8
pg_stat_progress_create_index 12312 v pid:int4 datid datname:name relid index_relid command:text phase:text lockers_total:int8
 lockers_done:int8 current_locker_pid:int8 blocks_total:int8 blocks_done:int8 tuples_total:int8 tuples_done:int8 partitions_total:int8
 partitions_done:int8
pg_stat_progress_vacuum 12302 v pid:int4 datid datname:name relid phase:text heap_blks_total:int8 heap_blks_scanned:int8
 heap_blks_vacuumed:int8 index_vacuum_count:int8 max_dead_tuples:int8 num_dead_tuples:int8
pg_stat_recovery_prefetch 12240 v stats_reset:timestamptz prefetch:int8 hit:int8 skip_init:int8 skip_new:int8 skip_fpw:int8
 skip_rep:int8 wal_distance:int4 block_distance:int4 io_depth:int4
pg_stat_replication 12227 v pid:int4 usesysid usename:name application_name:text client_addr:inet client_hostname:text client_port:int4
 backend_start:timestamptz backend_xmin:xid state:text sent_lsn:pg_lsn write_lsn:pg_lsn flush_lsn:pg_lsn replay_lsn:pg_lsn
 write_lag:interval flush_lag:interval replay_lag:interval sync_priority:int4 sync_state:text reply_time:timestamptz
pg_stat_replication_slots 12262 v slot_name:text spill_txns:int8 spill_count:int8 spill_bytes:int8 stream_txns:int8 stream_count:int8
 stream_bytes:int8 total_txns:int8 total_bytes:int8 stats_reset:timestamptz
pg_stat_slru 12232 v name:text blks_zeroed:int8 blks_hit:int8 blks_read:int8 blks_written:int8 blks_exists:int8 flushes:int8
 truncates:int8 stats_reset:timestamptz
pg_stat_ssl 12249 v pid:int4 ssl:bool version:text cipher:text bits:int4 client_dn:text client_serial:numeric issuer_dn:text
pg_stat_subscription 12244 v subid subname:name pid:int4 relid received_lsn:pg_lsn last_msg_send_time:timestamptz
 last_msg_receipt_time:timestamptz latest_end_lsn:pg_lsn latest_end_time:timestamptz
pg_stat_subscription_stats 12336 v subid subname:name apply_error_count:int8 sync_error_count:int8 stats_reset:timestamptz
pg_stat_sys_indexes 12188 v relid indexrelid schemaname:name relname:name indexrelname:name idx_scan:int8 idx_tup_read:int8
 idx_tup_fetch:int8
pg_stat_sys_tables 12152 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8
 n_ins_since_vacuum:int8 last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz last_autoanalyze:timestamptz
 vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 autoanalyze_count:int8
pg_stat_user_functions 12275 v funcid schemaname:name funcname:name calls:int8 total_time:float8 self_time:float8
pg_stat_user_indexes 12192 v relid indexrelid schemaname:name relname:name indexrelname:name idx_scan:int8 idx_tup_read:int8
 idx_tup_fetch:int8
pg_stat_user_tables 12161 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8
 n_ins_since_vacuum:int8 last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz last_autoanalyze:timestamptz
 vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 autoanalyze_count:int8
pg_stat_wal 12293 v wal_records:int8 wal_fpi:int8 wal_bytes:numeric wal_buffers_full:int8 wal_write:int8 wal_sync:int8
 wal_write_time:float8 wal_sync_time:float8 stats_reset:timestamptz
pg_stat_wal_receiver 12236 v pid:int4 status:text receive_start_lsn:pg_lsn receive_start_tli:int4 written_lsn:pg_lsn flushed_lsn:pg_lsn
 received_tli:int4 last_msg_send_time:timestamptz last_msg_receipt_time:timestamptz latest_end_lsn:pg_lsn latest_end_time:timestamptz
 slot_name:text sender_host:text sender_port:int4 conninfo:text
pg_stat_xact_all_tables 12147 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8
pg_stat_xact_sys_tables 12157 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8
pg_stat_xact_user_functions 12280 v funcid schemaname:name funcname:name calls:int8 total_time:float8 self_time:float8
pg_stat_xact_user_tables 12166 v relid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8 idx_tup_fetch:int8
 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8
pg_statio_all_indexes 12196 v relid indexrelid schemaname:name relname:name indexrelname:name idx_blks_read:int8 idx_blks_hit:int8
pg_statio_all_sequences 12209 v relid schemaname:name relname:name blks_read:int8 blks_hit:int8
pg_statio_all_tables 12170 v relid schemaname:name relname:name heap_blks_read:int8 heap_blks_hit:int8 idx_blks_read:int8
 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 tidx_blks_read:int8 tidx_blks_hit:int8
pg_statio_sys_indexes 12201 v relid indexrelid schemaname:name relname:name indexrelname:name idx_blks_read:int8 idx_blks_hit:int8
pg_statio_sys_sequences 12214 v relid schemaname:name relname:name blks_read:int8 blks_hit:int8
pg_statio_sys_tables 12175 v relid schemaname:name relname:name heap_blks_read:int8 heap_blks_hit:int8 idx_blks_read:int8
 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 tidx_blks_read:int8 tidx_blks_hit:int8
pg_statio_user_indexes 12205 v relid indexrelid schemaname:name relname:name indexrelname:name idx_blks_read:int8 idx_blks_hit:int8
pg_statio_user_sequences 12218 v relid schemaname:name relname:name blks_read:int8 blks_hit:int8
pg_statio_user_tables 12179 v relid schemaname:name relname:name heap_blks_read:int8 heap_blks_hit:int8 idx_blks_read:int8
 idx_blks_hit:int8 toast_blks_read:int8 toast_blks_hit:int8 tidx_blks_read:int8 tidx_blks_hit:int8
pg_statistic 2619 r starelid! staattnum:int2! stainherit:bool! stanullfrac:float4! stawidth:int4! stadistinct:float4! stakind1:int2!
 stakind2:int2! stakind3:int2! stakind4:int2! stakind5:int2! staop1! staop2! staop3! staop4! staop5! stacoll1! stacoll2! stacoll3!
 stacoll4! stacoll5! stanumbers1:_float4 stanumbers2:_float4 stanumbers3:_float4 stanumbers4:_float4 stanumbers5:_float4
 stavalues1:anyarray stavalues2:anyarray stavalues3:anyarray stavalues4:anyarray stavalues5:anyarray
pg_statistic_ext 3381 r oid! stxrelid! stxname:name! stxnamespace! stxowner! stxstattarget:int4! stxkeys:int2vector! stxkind:_char!
 stxexprs:pg_node_tree
pg_statistic_ext_data 3429 r stxoid! stxdinherit:bool! stxdndistinct:pg_ndistinct stxddependencies:pg_dependencies stxdmcv:pg_mcv_list
 stxdexpr:anyarray
pg_stats 12053 v schemaname:name tablename:name attname:name inherited:bool null_frac:float4 avg_width:int4 n_distinct:float4
 most_common_vals:anyarray most_common_freqs:_float4 histogram_bounds:anyarray correlation:float4 most_common_elems:anyarray
 most_common_elem_freqs:_float4 elem_count_histogram:_float4
pg_stats_ext 12058 v schemaname:name tablename:name statistics_schemaname:name statistics_name:name statistics_owner:name attnames:_name
 exprs:_text kinds:_char inherited:bool n_distinct:pg_ndistinct dependencies:pg_dependencies most_common_vals:_text
 most_common_val_nulls:_bool most_common_freqs:_float8 most_common_base_freqs:_float8
pg_stats_ext_exprs 12063 v schemaname:name tablename:name statistics_schemaname:name statistics_name:name statistics_owner:name
 expr:text inherited:bool null_frac:float4 avg_width:int4 n_distinct:float4 most_common_vals:anyarray most_common_freqs:_float4
 histogram_bounds:anyarray correlation:float4 most_common_elems:anyarray most_common_elem_freqs:_float4 elem_count_histogram:_float4
pg_subscription 6100 r oid! subdbid! subskiplsn:pg_lsn! subname:name! subowner! subenabled:bool! subbinary:bool! substream:bool!
 subtwophasestate:char! subdisableonerr:bool! subconninfo:text! subslotname:name subsynccommit:text! subpublications:_text!
pg_subscription_rel 6102 r srsubid! srrelid! srsubstate:char! srsublsn:pg_lsn
pg_tables 12033 v schemaname:name tablename:name tableowner:name tablespace:name hasindexes:bool hasrules:bool hastriggers:bool
 rowsecurity:bool
pg_tablespace 1213 r oid! spcname:name! spcowner! spcacl:_aclitem spcoptions:_text
pg_timezone_abbrevs 12122 v abbrev:text utc_offset:interval is_dst:bool
pg_timezone_names 12126 v name:text abbrev:text utc_offset:interval is_dst:bool
pg_transform 3576 r oid! trftype! trflang! trffromsql:regproc! trftosql:regproc!
pg_trigger 2620 r oid! tgrelid! tgparentid! tgname:name! tgfoid! tgtype:int2! tgenabled:char! tgisinternal:bool! tgconstrrelid!
 tgconstrindid! tgconstraint! tgdeferrable:bool! tginitdeferred:bool! tgnargs:int2! tgattr:int2vector! tgargs:bytea! tgqual:pg_node_tree
 tgoldtable:name tgnewtable:name
pg_ts_config 3602 r oid! cfgname:name! cfgnamespace! cfgowner! cfgparser!
pg_ts_config_map 3603 r mapcfg! maptokentype:int4! mapseqno:int4! mapdict!
pg_ts_dict 3600 r oid! dictname:name! dictnamespace! dictowner! dicttemplate! dictinitoption:text
pg_ts_parser 3601 r oid! prsname:name! prsnamespace! prsstart:regproc! prstoken:regproc! prsend:regproc! prsheadline:regproc!
 prslextype:regproc!
pg_ts_template 3764 r oid! tmplname:name! tmplnamespace! tmplinit:regproc! tmpllexize:regproc!
pg_type 1247 r oid! typname:name! typnamespace! typowner! typlen:int2! typbyval:bool! typtype:char! typcategory:char!
 typispreferred:bool! typisdefined:bool! typdelim:char! typrelid! typsubscript:regproc! typelem! typarray! typinput:regproc!
 typoutput:regproc! typreceive:regproc! typsend:regproc! typmodin:regproc! typmodout:regproc! typanalyze:regproc! typalign:char!
 typstorage:char! typnotnull:bool! typbasetype! typtypmod:int4! typndims:int4! typcollation! typdefaultbin:pg_node_tree typdefault:text
 typacl:_aclitem
pg_user 12014 v usename:name usesysid usecreatedb:bool usesuper:bool userepl:bool usebypassrls:bool passwd:text valuntil:timestamptz
 useconfig:_text
pg_user_mapping 1418 r oid! umuser! umserver! umoptions:_text
pg_user_mappings 12327 v umid srvid srvname:name umuser usename:name umoptions:_text
pg_views 12028 v schemaname:name viewname:name viewowner:name definition:text
"""
"""A relation: name, OID, kind, and its columns. A column: name, `:` and type (without: oid), `!` if it is never NULL. A line
that begins with a space continues the one before it."""
